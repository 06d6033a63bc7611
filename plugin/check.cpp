// SPDX-License-Identifier: MIT
#include "plugin/adopt.hpp"
#include "plugin/foreign_qdisc.hpp"
#include "plugin/ipam.hpp"
#include "plugin/verbs.hpp"
#include "plugin/verify.hpp"

namespace podlane {
namespace {

Error gone(std::string sentence) {
    return {ErrorCode::check_failed, std::move(sentence),
            "podlanectl repair puts it back if it can; otherwise delete the pod's sandbox, and the runtime creates a "
            "new one"};
}

} // namespace

Result<std::string> check(const cni::Request &request) {
    if (!request.config.prev_result)
        return Error{ErrorCode::invalid_network_config, "CHECK needs \"prevResult\", the result of the ADD"};
    if (!request.config.ipam_type.empty() && request.config.own_addresses.empty())
        TRY(ipam::check(request));
    const net::Namespace pod = TRY(open_container(request));
    const Tables tables = TRY(Tables::open(request.config.bpffs));
    net::Netlink host = TRY(net::Netlink::open());
    look_behind_last_adds(request.config, tables, host);
    const auto record = TRY(tables.endpoints.find(TRY(make_endpoint_key(request.container_id, request.ifname))));
    if (!record)
        return gone("the entry of container " + request.container_id + ", " + request.ifname +
                    " in " PODLANE_MAP_ENDPOINTS " is gone");
    if (record->netns_inode != pod.inode())
        return gone("CNI_NETNS " + request.netns + " is not the namespace the container was set up in");
    net::Netlink inside = TRY(net::Netlink::open_in(pod));
    TRY(Verifier(host, tables).verify(request, *record, inside));
    return std::string{};
}

} // namespace podlane
