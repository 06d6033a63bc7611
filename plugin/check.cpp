// SPDX-License-Identifier: MIT
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "loader/pod_namespace.hpp"
#include "plugin/adopt.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/foreign_qdisc.hpp"
#include "plugin/ipam.hpp"
#include "plugin/node.hpp"
#include "plugin/plan.hpp"
#include "plugin/pod_mac.hpp"
#include "plugin/state.hpp"
#include "plugin/verbs.hpp"
#include "plugin/verify.hpp"

namespace podlane {
namespace {

Result<void> follow_later_plugins(const cni::Request &request, const Tables &tables, net::Netlink &host,
                                  net::Netlink &inside, const endpoint_key &key, endpoint &record) {
    const Lock lock = TRY(Lock::shared(request.config.bpffs));
    TRY(tables.check_generation(request.config.bpffs));
    return follow_pod_link(tables, host, key, record, inside, request.ifname);
}

Result<Tables> open_tables(const std::string &root) {
    auto tables = Tables::open(root);
    if (!tables && tables.error().hint.empty())
        tables.error().hint = std::string("podlanectl repair; if that fails, ") + kRecreateSandbox;
    return tables;
}

} // namespace

Result<std::string> check(const cni::Request &request) {
    if (!request.config.prev_result)
        return Error{ErrorCode::invalid_network_config, "CHECK needs \"prevResult\", the result of the ADD",
                     "add what the ADD has printed to the configuration as \"prevResult\", as runtimes do"};
    if (addresses_of(*request.config.prev_result, request.ifname).empty())
        return Error{ErrorCode::invalid_network_config, "prevResult.ips has no address of " + request.ifname,
                     "give CHECK the whole result of the ADD, as runtimes do"};
    TRY(refuse_other_netns(request.config.bpffs, TRY(net::own_netns()))); // interface numbers are others' there
    if (!request.config.ipam_type.empty() && request.config.own_addresses.empty())
        TRY(ipam::check(request));
    const net::Namespace pod = TRY(open_container(request));
    const Tables tables = TRY(open_tables(request.config.bpffs));
    net::Netlink host = TRY(net::Netlink::open());
    look_behind_last_adds(request.config, tables, host);
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    auto record = TRY(tables.endpoints.find(key));
    if (!record)
        return gone("the entry of container " + request.container_id + ", " + request.ifname +
                    " in " PODLANE_MAP_ENDPOINTS " is gone");
    const auto recorded = TRY(find_record(request));
    auto inside = TRY(open_pod(pod, *record, recorded ? recorded->netns_cookie : 0));
    if (!inside)
        return Error{ErrorCode::check_failed,
                     "CNI_NETNS " + request.netns + " is not the namespace the container was set up in",
                     kRecreateSandbox};
    TRY(follow_later_plugins(request, tables, host, *inside, key, *record));
    cni::Request judged = request;
    std::vector<cni::Route> leased;
    if (recorded) {
        judged.config.groups = groups_in(*recorded);
        if (const auto made = recorded_request(*recorded))
            if (auto lease = recorded_lease(*made, *recorded)) // a torn record names no routes
                leased = std::move(lease->routes);
    }
    TRY(Verifier(host, tables).verify(judged, *record, *inside, leased, recorded && recorded->entry));
    TRY(check_node(request.config.bpffs, *record));
    return std::string{};
}

} // namespace podlane
