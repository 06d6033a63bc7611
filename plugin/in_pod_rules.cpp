// SPDX-License-Identifier: MIT
#include "plugin/in_pod_rules.hpp"

#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/route.hpp"
#include "loader/pins.hpp"
#include "loader/pod_namespace.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"
#include "plugin/pod_rules.hpp"
#include "plugin/remove.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

std::string words_of(const net::Link &link) { return link.name + (link.kind.empty() ? "" : " (" + link.kind + ")"); }

// A pod may have any number of links of its own.
std::string words_of(const std::vector<net::Link> &links) {
    constexpr std::size_t kMost = 3;
    std::string words;
    for (std::size_t i = 0; i < std::min(links.size(), kMost); ++i)
        words += (i == 0 ? "" : ", ") + words_of(links[i]);
    return links.size() > kMost ? words + " and " + std::to_string(links.size() - kMost) + " more" : words;
}

// A key that cannot be honoured is an error.
Result<void> refuse_what_needs_programs(const cni::Config &config, const net::Link &link) {
    const char *unsupported = !config.source_routing ? "nothing is left to do with \"sourceRouting\" false"
                              : config.bandwidth     ? "nothing can hold its limits"
                              : config.isolation.by != cni::IsolateBy::none ? "nothing can isolate it"
                              : config.egress_in_cluster                    ? "nothing can limit what it opens"
                              : config.ip_masq                              ? "\"ipMasq\" does not see its packets"
                              : !config.uplink.empty()                      ? "\"uplink\" is its main plugin's"
                              : config.table                                ? "\"table\" is its main plugin's"
                                                                            : nullptr;
    if (unsupported == nullptr)
        return {};
    return Error{ErrorCode::unsupported_field,
                 "interface " + words_of(link) + " has no host-side veth for the programs: " + unsupported,
                 "take the key out, or chain Podlane after a plugin that makes a veth pair (ptp, bridge)"};
}

// The others had programs only: what they send by the new interface would not meet one.
Result<void> put_rules_for_peers(const std::vector<PeerInterface> &peers, const Tables &tables, net::Netlink &pod) {
    for (const PeerInterface &peer : peers) {
        if ((peer.second.flags & INTERFACE_POD_RULES) != 0)
            continue;
        TRY(put_pod_rules(pod, peer.second, {}));
        TRY(change_flag(tables, peer.first, INTERFACE_POD_RULES, true));
    }
    return {};
}

// An interface that another plugin made alone, as far as put_pod_rules() is concerned.
Result<endpoint> as_record(const net::Link &link, net::Netlink &pod) {
    endpoint record{};
    record.mode = ENDPOINT_AFTER_MAIN;
    record.pod_ifindex = link.ifindex;
    for (const net::Address &one : TRY(net::list_addresses(pod, link.ifindex)))
        if (one.scope == net::kScopeGlobal && record.address_count < ENDPOINT_ADDRESSES)
            record.addresses[record.address_count++] = one.prefix.addr; // NOLINT(*-constant-array-index)
    return record;
}

Result<bool> has_default_route(net::Netlink &pod, std::uint32_t ifindex) {
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        for (const net::RouteSpec &route : TRY(net::list_routes(pod, ifindex, family)))
            if (route.destination.length == 0)
                return true;
    return false;
}

Result<bool> is_known(const cni::Request &request, const Tables &tables, const net::Link &link) {
    return TRY(tables.endpoints.find(TRY(make_endpoint_key(request.container_id, link.name)))).has_value();
}

// A default route that leads by them may be moved to an interface of Podlane's: what is sent from their addresses goes
// on to leave by them.
Result<void> put_rules_for_foreign(const cni::Request &request, const std::vector<net::Link> &links,
                                   const Tables &tables, net::Netlink &pod) {
    for (const net::Link &link : links) {
        if (TRY(is_known(request, tables, link)))
            continue;
        const endpoint record = TRY(as_record(link, pod));
        if (TRY(has_default_route(pod, link.ifindex)) && !TRY(has_pod_rules(pod, record)))
            TRY(put_pod_rules(pod, record, {}));
    }
    return {};
}

// With the container's last endpoint.
Result<void> remove_rules_for_foreign(const cni::Request &request, const FindEndpoint &find, const endpoint &record,
                                      net::Netlink &pod) {
    std::vector<net::Link> links;
    const auto peers = TRY(find_peer_interfaces(request, find, pod, record.netns_inode, &links));
    std::vector<net::Link> foreign;
    for (const net::Link &link : links)
        if (!TRY(find(TRY(make_endpoint_key(request.container_id, link.name)))))
            foreign.push_back(link);
    if (!peers.empty() || foreign.size() != links.size())
        return {};
    for (const net::Link &link : foreign)
        TRY(remove_pod_rules(pod, TRY(as_record(link, pod))));
    return {};
}

// Which of them got rules, only the maps say.
Result<void> release_peers(const cni::Request &request, const Tables *tables, const FindEndpoint &find,
                           const endpoint &record, net::Netlink &pod) {
    std::vector<net::Link> foreign_links;
    const auto peers = TRY(find_peer_interfaces(request, find, pod, record.netns_inode, &foreign_links));
    if (!foreign_links.empty())
        return {};
    for (const PeerInterface &peer : peers) {
        const std::uint32_t flags = peer.second.flags;
        if ((flags & INTERFACE_BRIDGED) != 0 || (tables != nullptr && (flags & INTERFACE_POD_RULES) == 0))
            continue;
        TRY(remove_pod_rules(pod, peer.second));
        if (tables != nullptr)
            TRY(change_flag(*tables, peer.first, INTERFACE_POD_RULES, false));
    }
    return {};
}

// As endpoints_v1 has it, or without maps the record on disk.
FindEndpoint endpoints_of(const cni::Request &request, const Tables *tables) {
    if (tables != nullptr)
        return [tables](const endpoint_key &key) { return tables->endpoints.find(key); };
    return [&request](const endpoint_key &key) -> Result<std::optional<endpoint>> {
        const auto found =
            TRY(records_of(request.config).find(request.container_id, std::string(field_text(key.ifname))));
        return found ? found->entry : std::nullopt;
    };
}

// A foreign container may have the path and the inode number of one that is gone.
Result<void> refuse_other_interface(const cni::Request &request, const endpoint &record, net::Netlink &pod) {
    const auto link = TRY(net::find_link(pod, request.ifname));
    const bool is_known = link && link->ifindex == record.pod_ifindex;
    if (is_known && (request.netns_cookie != 0 || link->mac == to_mac(record.pod_mac)))
        return {};
    return Error{ErrorCode::missing, "interface " + request.ifname + " of the container is not the one that ADD saw",
                 kRecreateSandbox};
}

} // namespace

std::vector<cni::Address> addresses_with_gateways(const cni::Request &request, const endpoint &record) {
    if (record.mode != ENDPOINT_AFTER_MAIN || !request.config.prev_result)
        return {};
    std::vector<cni::Address> own = addresses_of(*request.config.prev_result, request.ifname);
    for (cni::Address &one : own)
        for (const ip_addr &gateway : request.config.gateways)
            if (is_ipv4(gateway) == is_ipv4(one.prefix.addr))
                one.gateway = gateway;
    return own;
}

Result<cni::Attachment> adopt_without_host_veth(const cni::Request &request, const net::Namespace &pod,
                                                Sockets &sockets, const Tables &tables, const net::Link &link,
                                                Rollback &rollback) {
    TRY(refuse_what_needs_programs(request.config, link));
    rollback.keep(TRY(Lock::shared(request.config.bpffs)));
    TRY(tables.check_generation(request.config.bpffs));
    Plan plan = make_plan_without_host_veth(link, pod.inode(), TRY(adopted_addresses(request)));
    plan.netns = request.netns;
    const endpoint record = TRY(make_endpoint(request, plan));
    TRY(log_plan(request, plan, record, {}));
    TRY(update_record(request, record, nullptr, 0));
    TRY(put_record({request, record, &request.config, 0, &tables}, sockets.host, rollback));
    log(cni::Log::Level::warning,
        "interface " + words_of(link) +
            " of the container has no host-side veth for the programs: source routing is done by "
            "rules in the container");
    TRY(put_pod_rules(sockets.pod, record, addresses_with_gateways(request, record)));
    std::vector<net::Link> foreign_links;
    TRY(put_rules_for_peers(TRY(find_peer_interfaces(request, tables, sockets.pod, pod.inode(), &foreign_links)),
                            tables, sockets.pod));
    TRY(put_rules_for_foreign(request, foreign_links, tables, sockets.pod));
    return *request.config.prev_result;
}

Result<void> put_rules_beside(const cni::Request &request, const Tables &tables, const ContainerLinks &others,
                              const endpoint &record, net::Netlink &pod) {
    if (!others.peers.empty())
        log(cni::Log::Level::info, "source routing is done by the programs on " +
                                       std::string(field_text(record.host_ifname)) +
                                       " and on the container's other host-side veths");
    if (const std::size_t count = others.foreign_links.size(); count != 0)
        log(cni::Log::Level::warning, (count == 1 ? "interface " : "interfaces ") + words_of(others.foreign_links) +
                                          " of the container " + (count == 1 ? "has" : "have") +
                                          " no programs: source routing is done by rules in the container");
    if ((record.flags & INTERFACE_BRIDGED) != 0)
        log(cni::Log::Level::warning, std::string(field_text(record.host_ifname)) +
                                          " is a port of a bridge that does not route for it: source routing of its "
                                          "addresses is done by rules in the container");
    if ((record.flags & INTERFACE_POD_RULES) == 0)
        return {};
    TRY(put_pod_rules(pod, record, addresses_with_gateways(request, record)));
    return put_rules_for_foreign(request, others.foreign_links, tables, pod);
}

Result<void> rejoin_container(const cni::Request &request, const Tables &tables, const endpoint &record) {
    if ((record.flags & INTERFACE_POD_RULES) == 0)
        return {};
    const net::Namespace pod = TRY(open_container(request));
    net::Netlink inside = TRY(open_recorded(pod, request, record));
    if (record.ifindex == 0)
        TRY(refuse_other_interface(request, record, inside));
    TRY(put_pod_rules(inside, record, addresses_with_gateways(request, record)));
    std::vector<net::Link> foreign_links;
    const auto peers = TRY(find_peer_interfaces(request, tables, inside, pod.inode(), &foreign_links));
    if (record.ifindex == 0)
        TRY(put_rules_for_peers(peers, tables, inside));
    return put_rules_for_foreign(request, foreign_links, tables, inside);
}

Result<void> leave_container(const cni::Request &request, const Tables *tables, const endpoint &record) {
    const bool may_have_rules = (record.flags & INTERFACE_POD_RULES) != 0 || tables == nullptr;
    if (!may_have_rules || request.netns.empty())
        return {};
    const auto pod = TRY(net::Namespace::find(request.netns));
    auto inside = pod ? TRY(open_pod(*pod, record, request.netns_cookie)) : std::nullopt;
    if (!inside)
        return {};
    TRY(remove_pod_rules(*inside, record));
    const FindEndpoint find = endpoints_of(request, tables);
    TRY(remove_rules_for_foreign(request, find, record, *inside));
    return record.ifindex == 0 ? release_peers(request, tables, find, record, *inside) : Result<void>{};
}

} // namespace podlane
