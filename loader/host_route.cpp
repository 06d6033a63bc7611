// SPDX-License-Identifier: MIT
#include "loader/host_route.hpp"

#include "loader/net/link.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace podlane {
namespace {

bool leads_to(const net::RouteSpec &route, std::uint32_t ifindex) {
    return route.ifindex == ifindex && route.type == net::kUnicast && route.other_links.empty();
}

std::string type_of(const net::RouteSpec &route) {
    constexpr std::array<const char *, 10> kTypes = {"",          "",          "local",       "broadcast", "anycast",
                                                     "multicast", "blackhole", "unreachable", "prohibit",  "throw"};
    return route.type < kTypes.size() && *kTypes.at(route.type) != '\0' ? std::string(kTypes.at(route.type)) + " " : "";
}

std::string metric_of(const net::RouteSpec &route) {
    const std::uint32_t metric = route.priority.value_or(0);
    return metric == 0 ? "" : " metric " + std::to_string(metric);
}

std::string table_of(const net::RouteSpec &route) {
    const std::uint32_t table = route.table.value_or(net::kMainTable);
    return table == net::kMainTable    ? ""
           : table == net::kLocalTable ? " table local"
                                       : " table " + std::to_string(table);
}

std::string ip_of(const net::RouteSpec &route) { return is_ipv4(route.destination.addr) ? "ip " : "ip -6 "; }

Error found(const std::string &sentence, const net::RouteSpec &route, const std::string &then) {
    return {ErrorCode::check_failed, "the node's route " + sentence,
            "see `" + ip_of(route) + "route show" + table_of(route) + " " + to_string(route.destination) + "`; then " +
                then};
}

Error hides(const net::RouteSpec &other, const net::RouteSpec &planned, const std::string &veth) {
    return found(route_words(other) + " hides the one to " + to_string(planned.destination.addr) + " by " + veth, other,
                 "`ip " + removal_of(other) + "`");
}

Error shares(const net::RouteSpec &used, const std::string &veth) {
    return found(route_words(used) + " sends packets to others than " + veth + " as well", used,
                 "`ip " + removal_of(used) + "` and `podlanectl repair`");
}

Error draws(const net::RouteSpec &twin, const std::string &link) {
    return found(route_words(twin) + " by " + link + " draws packets to the pod that arrive by " + link, twin,
                 "`ip " + removal_of(twin, link) + "`");
}

// The kernel says of a route that refuses nothing but its error, and may keep the local table within the main one,
// whose it says then that all are.
Result<std::optional<net::RouteSpec>> used_route(net::Netlink &host, const ip_addr &addr) {
    auto used = TRY(net::route_to(host, addr));
    if (used && used->type != net::kUnicast && used->table == net::kMainTable)
        if (auto local = TRY(best_route(host, net::kLocalTable, addr));
            local && local->destination == used->destination)
            return local;
    for (const std::uint32_t table : {net::kMainTable, net::kLocalTable})
        if (!used)
            if (auto best = TRY(best_route(host, table, addr)); best && refuses_packets(*best))
                used = std::move(best);
    return used;
}

// A pod of the node's own namespace (CNI_NETNS_OVERRIDE) makes its addresses the node's.
Result<bool> is_pod_of_node(net::Netlink &host, const net::RouteSpec &used, std::uint32_t host_veth) {
    const auto link = TRY(net::find_link(host, host_veth));
    return used.type == net::kLocal && link && !link->peer_nsid && link->peer_ifindex == used.ifindex;
}

bool by_destination(const net::RouteSpec &a, const net::RouteSpec &b) {
    return std::memcmp(&a.destination.addr, &b.destination.addr, sizeof a.destination.addr) < 0;
}

// Those to one address that are not alone.
std::vector<net::RouteSpec> twins_in(std::vector<net::RouteSpec> routes) {
    std::erase_if(routes, [](const net::RouteSpec &one) { return !is_host_prefix(one.destination); });
    std::ranges::sort(routes, by_destination);
    std::vector<net::RouteSpec> twins;
    for (auto one = routes.begin(); one != routes.end(); ++one) {
        const bool is_like_last = one != routes.begin() && std::prev(one)->destination == one->destination;
        const bool is_like_next = std::next(one) != routes.end() && std::next(one)->destination == one->destination;
        if (is_like_last || is_like_next)
            twins.push_back(*one);
    }
    return twins;
}

} // namespace

Result<bool> leads_elsewhere(net::Netlink &host, const net::RouteSpec &planned) {
    constexpr std::uint32_t kDefaultIpv6Metric = 1024; // IP6_RT_PRIO_USER
    const bool ipv4 = is_ipv4(planned.destination.addr);
    const std::uint32_t metric = planned.priority.value_or(ipv4 ? 0 : kDefaultIpv6Metric);
    return std::ranges::any_of(TRY(net::list_routes(host, 0, net::family_of(ipv4))), [&](const net::RouteSpec &one) {
        return one.destination == planned.destination && one.priority.value_or(0) == metric &&
               (one.ifindex != planned.ifindex || one.type != planned.type);
    });
}

Error elsewhere(const net::RouteSpec &planned) {
    const std::string to = to_string(planned.destination);
    return {ErrorCode::check_failed, "the node's route to " + to + " leads elsewhere",
            "see `ip route show " + to + "`; then `ip route del " + to + "` and `podlanectl repair`"};
}

Result<void> restore_host_route(net::Netlink &host, const net::RouteSpec &planned) {
    const bool is_new = TRY(net::add_route(host, planned));
    if (planned.append)
        return {};
    if (!is_new && !TRY(net::find_route(host, planned)))
        return elsewhere(planned);
    const auto hiding = TRY(HostRoutes(host).find_hiding(planned));
    return hiding ? Result<void>(*hiding) : Result<void>{};
}

// The kernel prefers the route by the interface that a packet has come by, among those of the same metric.
Result<std::optional<net::RouteSpec>> HostRoutes::find_twin(const net::RouteSpec &used) {
    if (!twins_)
        twins_ = twins_in(TRY(net::list_routes(host_, 0, net::Family::ipv6)));
    const auto twin = std::ranges::find_if(*twins_, [&](const net::RouteSpec &one) {
        return one.destination == used.destination && one.priority == used.priority && one.ifindex != used.ifindex &&
               one.ifindex != 0;
    });
    return twin == twins_->end() ? std::optional<net::RouteSpec>{} : *twin;
}

Result<bool> HostRoutes::follow(const net::RouteSpec &planned) {
    const ip_addr &addr = planned.destination.addr;
    const auto used = TRY(net::route_to(host_, addr));
    if (!used || used->table != net::kMainTable || used->destination != planned.destination ||
        !leads_to(*used, planned.ifindex))
        return false;
    return is_ipv4(addr) || !TRY(find_twin(*used));
}

Result<std::optional<Error>> HostRoutes::find_hiding(const net::RouteSpec &planned) {
    const ip_addr &addr = planned.destination.addr;
    const auto used = TRY(used_route(host_, addr));
    if (!used)
        return std::optional<Error>{};
    const bool is_in_main = used->table == net::kMainTable && used->destination == planned.destination;
    if (is_in_main && leads_to(*used, planned.ifindex)) {
        const auto twin = is_ipv4(addr) ? std::nullopt : TRY(find_twin(*used));
        return twin ? std::optional(draws(*twin, TRY(net::link_name(twin->ifindex)))) : std::nullopt;
    }
    if (is_in_main && used->ifindex == planned.ifindex && used->type == net::kUnicast)
        return std::optional(shares(*used, TRY(net::link_name(planned.ifindex))));
    if (!is_in_main && (used->table != net::kLocalTable || TRY(is_pod_of_node(host_, *used, planned.ifindex))))
        return std::optional<Error>{};
    return std::optional(hides(*used, planned, TRY(net::link_name(planned.ifindex))));
}

Result<std::optional<net::RouteSpec>> best_route(net::Netlink &netlink, std::uint32_t table, const ip_addr &addr) {
    std::optional<net::RouteSpec> best;
    for (net::RouteSpec &one : TRY(net::list_routes(netlink, 0, net::family_of(addr), table))) {
        const std::uint32_t metric = one.priority.value_or(0);
        const bool is_better =
            !best || one.destination.length > best->destination.length ||
            (one.destination.length == best->destination.length && metric < best->priority.value_or(0));
        if (contains(one.destination, addr) && is_better)
            best = std::move(one);
    }
    return best;
}

bool refuses_packets(const net::RouteSpec &route) { return route.type >= net::kBlackhole && route.type < net::kThrow; }

std::string route_words(const net::RouteSpec &route) {
    return type_of(route) + to_string(route.destination) + metric_of(route) + table_of(route);
}

std::string removal_of(const net::RouteSpec &route, const std::string &link) {
    const std::string family = is_ipv4(route.destination.addr) ? "" : "-6 ";
    return family + "route del " + type_of(route) + to_string(route.destination) +
           (link.empty() ? "" : " dev " + link) + metric_of(route) + table_of(route);
}

} // namespace podlane
