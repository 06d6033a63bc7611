// SPDX-License-Identifier: MIT
#include "loader/net/route.hpp"

#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <array>

namespace podlane::net {
namespace {

static_assert(kMainTable == RT_TABLE_MAIN && kLocalTable == RT_TABLE_LOCAL && kAllTables == RT_TABLE_UNSPEC);
static_assert(kUnicast == RTN_UNICAST && kLocal == RTN_LOCAL && kBroadcast == RTN_BROADCAST && kAnycast == RTN_ANYCAST);
static_assert(kBlackhole == RTN_BLACKHOLE && kUnreachable == RTN_UNREACHABLE && kThrow == RTN_THROW);

constexpr std::uint32_t kLargestShortTable = 255;

rtmsg route_header(const RouteSpec &route) {
    rtmsg header{};
    header.rtm_family = number(family_of(route.destination.addr));
    header.rtm_dst_len = route.destination.length;
    const std::uint32_t table = route.table.value_or(kMainTable);
    header.rtm_table = static_cast<std::uint8_t>(table <= kLargestShortTable ? table : RT_TABLE_UNSPEC);
    header.rtm_type = route.type;
    return header;
}

void put_selector(Message &message, const RouteSpec &route) {
    message.put(RTA_TABLE, route.table.value_or(kMainTable)).put(RTA_PRIORITY, route.priority);
    if (route.destination.length > 0)
        message.put(RTA_DST, route.destination.addr);
    if (route.ifindex != 0)
        message.put(RTA_OIF, route.ifindex);
    if (!route.gateway)
        return;
    if (family_of(*route.gateway) == family_of(route.destination.addr)) {
        message.put(RTA_GATEWAY, *route.gateway);
    } else {
        std::array<std::uint8_t, sizeof(std::uint16_t) + sizeof(ip_addr)> via{};
        const std::uint16_t family = number(family_of(*route.gateway));
        std::memcpy(via.data(), &family, sizeof family);
        std::memcpy(via.data() + sizeof family, &*route.gateway, sizeof *route.gateway);
        message.put(RTA_VIA, via);
    }
}

std::string sentence(const char *verb, const RouteSpec &route) {
    std::string text = std::string(verb) + " route " + to_string(route.destination);
    if (route.gateway)
        text += " via " + to_string(*route.gateway);
    return text + " on interface " + std::to_string(route.ifindex);
}

std::optional<ip_addr> gateway_of(const Attributes<RTA_MAX> &attributes) {
    if (attributes.at(RTA_GATEWAY))
        return attributes.addr(RTA_GATEWAY);
    const nlattr *via = attributes.at(RTA_VIA);
    constexpr int kFamilySize = sizeof(std::uint16_t);
    if (!via || nla_len(via) <= kFamilySize)
        return std::nullopt;
    return addr_from_bytes(static_cast<const char *>(nla_data(via)) + kFamilySize,
                           static_cast<std::size_t>(nla_len(via) - kFamilySize));
}

// Takes link and gateway from the first of several paths, and the links of the others.
void take_paths(nlattr *multipath, RouteSpec &route) {
    if (!multipath || nla_len(multipath) < static_cast<int>(sizeof(rtnexthop)))
        return;
    auto *hop = static_cast<rtnexthop *>(nla_data(multipath));
    int rest = nla_len(multipath);
    if (!RTNH_OK(hop, rest))
        return;
    for (const rtnexthop *other = hop; RTNH_OK(other, rest);) {
        if (other != hop)
            route.other_links.push_back(static_cast<std::uint32_t>(other->rtnh_ifindex));
        rest -= static_cast<int>(NLMSG_ALIGN(other->rtnh_len));
        other = RTNH_NEXT(other);
    }
    route.ifindex = static_cast<std::uint32_t>(hop->rtnh_ifindex);
    route.onlink = (hop->rtnh_flags & RTNH_F_ONLINK) != 0;
    route.gateway = gateway_of(Attributes<RTA_MAX>(reinterpret_cast<nlattr *>(RTNH_DATA(hop)),
                                                   hop->rtnh_len - static_cast<int>(RTNH_LENGTH(0))));
}

RouteSpec parse_route(nlmsghdr *message) {
    const auto *header = static_cast<rtmsg *>(nlmsg_data(message));
    const Attributes<RTA_MAX> attributes(message, sizeof *header);
    const Attributes<RTAX_MAX> metrics(attributes.at(RTA_METRICS));
    RouteSpec route;
    route.destination.addr = attributes.addr(RTA_DST).value_or(any_addr(header->rtm_family == AF_INET));
    route.destination.length = header->rtm_dst_len;
    route.gateway = gateway_of(attributes);
    route.ifindex = attributes.get<std::uint32_t>(RTA_OIF).value_or(0);
    route.onlink = (header->rtm_flags & RTNH_F_ONLINK) != 0;
    route.scope = header->rtm_scope;
    route.table = attributes.get<std::uint32_t>(RTA_TABLE).value_or(header->rtm_table);
    route.priority = attributes.get<std::uint32_t>(RTA_PRIORITY);
    route.mtu = metrics.get<std::uint32_t>(RTAX_MTU);
    route.advmss = metrics.get<std::uint32_t>(RTAX_ADVMSS);
    route.preferred_source = attributes.addr(RTA_PREFSRC);
    route.protocol = header->rtm_protocol;
    route.type = header->rtm_type;
    route.expires = attributes.get<rta_cacheinfo>(RTA_CACHEINFO).value_or(rta_cacheinfo{}).rta_expires != 0;
    take_paths(attributes.at(RTA_MULTIPATH), route);
    return route;
}

// Routes of one table or kAllTables, of one link unless `ifindex` is 0. The kernel filters; clones of the route cache
// are left out.
Result<std::vector<RouteSpec>> dump_routes(Netlink &netlink, std::uint32_t ifindex, Family family,
                                           std::uint32_t table) {
    RouteSpec selector;
    selector.destination.addr = any_addr(family == Family::ipv4);
    selector.table = table;
    selector.type = RTN_UNSPEC;
    return dump<RouteSpec>(
        netlink,
        [&] {
            Message message(RTM_GETROUTE, kDump, route_header(selector));
            message.put(RTA_TABLE, table);
            if (ifindex != 0)
                message.put(RTA_OIF, ifindex);
            return message;
        },
        [&](nlmsghdr *message) -> std::optional<RouteSpec> {
            const auto *header = static_cast<rtmsg *>(nlmsg_data(message));
            RouteSpec route = parse_route(message);
            const bool wanted = (table == kAllTables || route.table == table) &&
                                (ifindex == 0 || route.ifindex == ifindex) && (header->rtm_flags & RTM_F_CLONED) == 0;
            return wanted ? std::optional(std::move(route)) : std::nullopt;
        },
        "listing the routes of interface " + std::to_string(ifindex));
}

// Without it, IPv4's table is always main.
std::uint32_t with_table(const ip_addr &addr) { return is_ipv4(addr) ? RTM_F_LOOKUP_TABLE : 0U; }

// The route entry that a lookup of `addr` ends at, whatever it is.
Outcome look_up(Netlink &netlink, const ip_addr &addr, std::optional<RouteSpec> &found, std::uint32_t flags = 0) {
    rtmsg header{};
    header.rtm_family = number(family_of(addr));
    header.rtm_dst_len = address_bits(addr);
    header.rtm_flags = RTM_F_FIB_MATCH | flags;
    Message message(RTM_GETROUTE, kChange, header);
    message.put(RTA_DST, addr);
    return request(netlink, std::move(message), [&](nlmsghdr *answer) { found = parse_route(answer); });
}

// The match that find_route() promises.
bool is_wanted(const RouteSpec &found, const RouteSpec &wanted) {
    return found.destination == wanted.destination && found.type == wanted.type &&
           found.table == wanted.table.value_or(kMainTable) &&
           (wanted.ifindex == 0 || found.ifindex == wanted.ifindex) &&
           (!wanted.gateway || (found.gateway && *found.gateway == *wanted.gateway)) &&
           (!wanted.priority || found.priority.value_or(0) == *wanted.priority);
}

void add_links(const RouteSpec &route, std::vector<std::uint32_t> &links) {
    links.push_back(route.ifindex);
    links.insert(links.end(), route.other_links.begin(), route.other_links.end());
}

bool is_default(const RouteSpec &route) {
    return route.destination.length == 0 && route.table == kMainTable && route.type == RTN_UNICAST;
}

} // namespace

ip_addr unrouted_addr(Family family) {
    return family == Family::ipv4 ? ipv4_from_host_order(0xf0000001U)       // 240.0.0.1, reserved (RFC 1112)
                                  : ip_addr{{htonl(0x40000000U), 0, 0, 0}}; // 4000::, unallocated (RFC 3513)
}

Result<bool> add_route(Netlink &netlink, const RouteSpec &route) {
    rtmsg header = route_header(route);
    const bool direct = !route.gateway && route.type == RTN_UNICAST;
    header.rtm_scope =
        route.scope.value_or(direct && is_ipv4(route.destination.addr) ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE);
    header.rtm_protocol = route.protocol;
    header.rtm_flags = route.onlink ? RTNH_F_ONLINK : 0;
    Message message(RTM_NEWROUTE, kChange | NLM_F_CREATE | (route.append ? NLM_F_APPEND : NLM_F_EXCL), header);
    put_selector(message, route);
    message.put(RTA_PREFSRC, route.preferred_source);
    if (route.mtu || route.advmss)
        message.nest(RTA_METRICS, [&] { message.put(RTAX_MTU, route.mtu).put(RTAX_ADVMSS, route.advmss); });
    return changed(request(netlink, std::move(message)), {EEXIST}, sentence("adding", route));
}

Result<bool> remove_route(Netlink &netlink, const RouteSpec &route) {
    rtmsg header = route_header(route);
    header.rtm_scope = route.scope.value_or(RT_SCOPE_NOWHERE); // any
    Message message(RTM_DELROUTE, kChange, header);
    put_selector(message, route);
    return changed(request(netlink, std::move(message)), {ESRCH, ENODEV, ENOENT}, sentence("removing", route));
}

Result<std::vector<RouteSpec>> list_routes(Netlink &netlink, std::uint32_t ifindex, Family family,
                                           std::uint32_t table) {
    return dump_routes(netlink, ifindex, family, table);
}

Result<std::optional<RouteSpec>> find_route(Netlink &netlink, const RouteSpec &route) {
    const Family family = family_of(route.destination.addr);
    const ip_addr &first = route.destination.addr;
    std::optional<RouteSpec> used;
    look_up(netlink, route.destination.length == 0 ? unrouted_addr(family) : first, used, with_table(first));
    if (used && is_wanted(*used, route))
        return used;
    // Another table, or one that a better route hides: a dump of 10,000 routes takes the kernel a millisecond.
    const auto routes = TRY(dump_routes(netlink, route.ifindex, family, route.table.value_or(kMainTable)));
    for (const RouteSpec &candidate : routes)
        if (is_wanted(candidate, route))
            return std::optional(candidate);
    return std::optional<RouteSpec>{};
}

bool is_of_link(const RouteSpec &route) {
    return route.protocol == RTPROT_KERNEL && route.type == RTN_UNICAST && !is_host_prefix(route.destination);
}

bool is_of_daemon(const RouteSpec &route) {
    constexpr auto kDaemons = std::to_array<std::uint8_t>(
        {RTPROT_GATED, RTPROT_ZEBRA, RTPROT_BIRD, RTPROT_BABEL, RTPROT_BGP, RTPROT_ISIS, RTPROT_OSPF, RTPROT_RIP});
    return std::ranges::find(kDaemons, route.protocol) != kDaemons.end();
}

Result<std::optional<RouteSpec>> route_to(Netlink &netlink, const ip_addr &addr) {
    std::optional<RouteSpec> found;
    const Outcome outcome = look_up(netlink, addr, found, with_table(addr));
    if (!outcome.ok() && !outcome.is({ENETUNREACH, EHOSTUNREACH, EINVAL, EACCES}))
        return outcome.as_error("looking for the route to " + to_string(addr));
    return found;
}

Result<std::optional<DefaultRoute>> default_route(Netlink &netlink, Family family) {
    std::optional<RouteSpec> found;
    const Outcome outcome = look_up(netlink, unrouted_addr(family), found);
    if (outcome.is({ENETUNREACH}))
        return std::optional<DefaultRoute>{};
    if (found && is_default(*found)) {
        DefaultRoute route{found->ifindex, found->gateway, {}};
        add_links(*found, route.links);
        return std::optional(std::move(route));
    }
    // Rules, split defaults or a route that refuses reserved addresses: the whole table has to be read.
    const auto routes = TRY(dump_routes(netlink, 0, family, kMainTable));
    std::optional<DefaultRoute> best;
    std::uint32_t metric = 0;
    for (const RouteSpec &route : routes) {
        if (!is_default(route) || (best && route.priority.value_or(0) > metric))
            continue;
        if (!best || route.priority.value_or(0) < metric)
            best = DefaultRoute{route.ifindex, route.gateway, {}};
        metric = route.priority.value_or(0);
        add_links(route, best->links);
    }
    return best;
}

} // namespace podlane::net
