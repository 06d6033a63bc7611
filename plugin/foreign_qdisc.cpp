// SPDX-License-Identifier: MIT
#include "plugin/foreign_qdisc.hpp"

#include "loader/edt.hpp"
#include "loader/net/qdisc.hpp"
#include "loader/pins.hpp"
#include "maps/history.hpp"
#include "plugin/log.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/pod_mac.hpp"

#include <algorithm>
#include <vector>

namespace podlane {
namespace {

constexpr std::uint32_t kFastPath = INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK;
constexpr std::size_t kLastCalls = 16; // a runtime starts a few pods at a time
// A runtime has run the whole list within this time; a call that began later has seen its result.
constexpr std::uint64_t kChainNs = 10'000'000'000;

Result<void> look_at(const operation &call, const Tables &tables, net::Netlink &host) {
    const endpoint_key key =
        TRY(make_endpoint_key(std::string(field_text(call.container_id)), std::string(field_text(call.ifname))));
    TRY(follow_announced_mac(tables, host, key));
    const auto record = TRY(tables.endpoints.find(key));
    if (!record)
        return {};
    const std::string kind = TRY(bypassed_qdisc(host, *record));
    if (kind.empty())
        return {};
    log(cni::Log::Level::warning, std::string(field_text(record->host_ifname)) + " has the qdisc " + kind +
                                      " of another program: its packets take the slow path, and so that qdisc");
    return leave_fast_path(tables, key);
}

// ADDs whose later plugins had perhaps not run when the last call looked.
std::vector<operation> unseen_adds(const History &history) {
    std::vector<operation> adds;
    std::uint64_t looked_ns = 0;
    for (const operation &call : history.newest(kLastCalls)) {
        if (looked_ns > call.started_ns + kChainNs)
            break;
        if (call.error_code != 0 || (call.verb != OPERATION_ADD && call.verb != OPERATION_CHECK))
            continue;
        looked_ns = std::max<std::uint64_t>(looked_ns, call.started_ns);
        if (call.verb == OPERATION_ADD)
            adds.push_back(call);
    }
    return adds;
}

Result<void> look_at_last_adds(const cni::Config &config, const Tables &tables, net::Netlink &host) {
    const std::vector<operation> adds = unseen_adds(TRY(History::read(config.bpffs)));
    if (adds.empty())
        return {};
    const Lock lock = TRY(Lock::shared(config.bpffs));
    TRY(tables.check_generation(config.bpffs));
    for (const operation &call : adds)
        TRY(look_at(call, tables, host));
    return {};
}

} // namespace

Result<std::string> foreign_root_qdisc(net::Netlink &host, const net::Link &host_veth) {
    const std::string &root = host_veth.qdisc;
    const bool is_own = is_edt_qdisc(root) && TRY(net::has_root_qdisc(host, host_veth.ifindex, LIMIT_QDISC));
    return root == "noqueue" || root == "noop" || is_own ? std::string() : root;
}

Result<std::string> foreign_qdisc(net::Netlink &host, const net::Link &host_veth) {
    std::string root = TRY(foreign_root_qdisc(host, host_veth));
    if (!root.empty())
        return root;
    const std::string ingress = TRY(net::ingress_qdisc(host, host_veth.ifindex));
    return ingress == net::kIngressQdisc ? ingress : std::string();
}

Result<std::string> bypassed_qdisc(net::Netlink &host, const endpoint &record) {
    if ((record.flags & kFastPath) == 0 || record.ifindex == 0)
        return std::string();
    const auto link = TRY(net::find_link(host, record.ifindex));
    if (!link || link->name != field_text(record.host_ifname))
        return std::string();
    return foreign_qdisc(host, *link);
}

Result<void> leave_fast_path(const Tables &tables, const endpoint_key &key) {
    TRY(change_flag(tables, key, INTERFACE_FAST_UPLINK, false));
    return change_flag(tables, key, INTERFACE_FAST_LOCAL, false);
}

void look_behind_last_adds(const cni::Config &config, const Tables &tables, net::Netlink &host) {
    if (auto looked = look_at_last_adds(config, tables, host); !looked)
        log(cni::Log::Level::warning, "looking for what later plugins did: " + looked.error().message);
}

} // namespace podlane
