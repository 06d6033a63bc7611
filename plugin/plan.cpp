// SPDX-License-Identifier: MIT
#include "plugin/plan.hpp"

#include "maps/abi/config.h"
#include "loader/host_veth.hpp"
#include "loader/net/address.hpp"
#include "loader/shaper.hpp"
#include "maps/hash.hpp"
#include "maps/tables.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/plan_addresses.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace podlane {
namespace {

constexpr Mac kHostMac = PODLANE_HOST_MAC;

std::uint64_t identity_hash(const cni::Request &request) {
    return fnv1a_64(request.container_id + "/" + request.ifname);
}

// Locally administered, unicast, and the same at every ADD of the same attachment.
Mac pod_mac_of(const cni::Request &request) {
    if (request.config.requested_mac)
        return *request.config.requested_mac;
    const std::uint64_t hash = identity_hash(request);
    Mac mac{};
    for (std::size_t i = 0; i < mac.size(); ++i)
        mac[i] = static_cast<std::uint8_t>(hash >> (8 * i));
    mac[0] = static_cast<std::uint8_t>((mac[0] & 0xfcU) | 0x02U);
    return mac;
}

// Builds the pod's routes and neighbours family by family; every next hop is the host-side veth.
class RouteBuilder {
  public:
    RouteBuilder(Plan &plan, bool ipv4) : plan_(plan), ipv4_(ipv4) {}

    // IPv4 reaches its gateway by a link route; the IPv6 one is link-local.
    void add_gateway() {
        if (ipv4_)
            plan_.pod_routes.push_back({.destination = host_prefix(own_gateway(true)), .scope = net::kScopeLink});
        add_neighbour(own_gateway(ipv4_));
    }
    // The lease's own gateway is no machine: the host-side veth stands for it, for plugins and people that use it.
    void add_next_hop(const ip_addr &addr) {
        if (has_neighbour(addr))
            return;
        plan_.pod_routes.push_back({.destination = host_prefix(addr), .scope = net::kScopeLink});
        add_neighbour(addr);
    }
    void add(const cni::Route &route) {
        const ip_addr next_hop =
            route.gateway && is_ipv4(*route.gateway) == ipv4_ ? *route.gateway : own_gateway(ipv4_);
        add_neighbour(next_hop);
        net::RouteSpec spec{.destination = masked(route.destination), .gateway = next_hop, .onlink = true};
        spec.table = route.table;
        spec.priority = route.priority;
        spec.mtu = route.mtu;
        spec.advmss = route.advmss;
        plan_.pod_routes.push_back(spec);
    }

  private:
    [[nodiscard]] bool has_neighbour(const ip_addr &addr) const {
        return std::ranges::any_of(plan_.pod_neighbours, [&](const net::Neighbour &one) { return one.addr == addr; });
    }
    void add_neighbour(const ip_addr &addr) {
        if (!has_neighbour(addr))
            plan_.pod_neighbours.push_back({addr, kHostMac, true});
    }
    Plan &plan_;
    bool ipv4_;
};

void plan_routes(const cni::Request &request, const std::vector<cni::Address> &leased, bool ipv4, Plan &plan) {
    RouteBuilder builder(plan, ipv4);
    builder.add_gateway();
    for (const cni::Address &one : leased)
        if (one.gateway && is_ipv4(one.prefix.addr) == ipv4 && is_ipv4(*one.gateway) == ipv4)
            builder.add_next_hop(*one.gateway);
    const auto of_family = [&](const cni::Route &route) { return is_ipv4(route.destination.addr) == ipv4; };
    bool any = false;
    bool has_default = false;
    for (const cni::Route &route : plan.result.routes)
        if (of_family(route)) {
            any = true;
            has_default = has_default || route.destination.length == 0;
        }
    const std::uint32_t taken = ipv4 ? INTERFACE_NO_DEFAULT_IPV4 : INTERFACE_NO_DEFAULT_IPV6;
    if (!has_default && request.config.default_route.value_or(!any && (plan.flags & taken) == 0)) {
        plan.result.routes.push_back({.destination = {any_addr(ipv4), 0}, .gateway = own_gateway(ipv4)});
        has_default = true;
    }
    // The lease's subnet is not on the link: without a default route it needs one of its own, and if another
    // interface has the default route, requests to its network's neighbours are to leave here.
    for (const cni::Address &one : leased)
        if (is_ipv4(one.prefix.addr) == ipv4 && (!has_default || has_egress_route(request.config)) &&
            !is_host_prefix(one.prefix))
            builder.add({.destination = masked(one.prefix)});
    for (const cni::Route &route : plan.result.routes)
        if (of_family(route))
            builder.add(route);
}

// The container's end: a namespace made with IPv6 switched off would refuse the addresses.
void plan_pod(const cni::Request &request, Plan &plan) {
    for (const ip_addr &addr : plan.addresses)
        plan.pod_addresses.push_back({host_prefix(addr), net::kNoDad, net::kScopeGlobal});
    plan.pod_settings = pod_settings_of(request.config, plan);
    // The kernel announces the addresses when a later plugin changes the MAC, so that the program learns it.
    if (std::ranges::any_of(plan.addresses, is_ipv4))
        plan.pod_settings.push_back({{"net", "ipv4", "conf", request.ifname, "arp_notify"}, "1"});
    if (is_none(plan.link_local))
        return;
    plan.pod_settings.push_back({{"net", "ipv6", "conf", request.ifname, "ndisc_notify"}, "1"});
    plan.pod_addresses.push_back({{plan.link_local, 64}, net::kNoDad, net::kScopeLink});
    plan.pod_settings.push_back({{"net", "ipv6", "conf", request.ifname, "disable_ipv6"}, "0"});
}

// Then the host-side veth needs no IPv6 either: for each interface that has it the kernel keeps a multicast route in
// one list, which every ADD and DEL walks.
bool cannot_send_ipv6(const cni::Config &config, const Plan &plan) {
    return is_none(plan.link_local) && config.anti_spoof &&
           std::ranges::all_of(config.allowed_sources, [](const Prefix &one) { return is_ipv4(one.addr); });
}

// Were the host-side veth's address one of the subnet, the kernel would join the anycast address of its routers too
// (RFC 4291, 2.6.1), and wait for one more grace period when the link goes.
void plan_host(const cni::Config &config, Plan &plan) {
    plan.node_settings = node_settings_of(plan.addresses);
    if (cannot_send_ipv6(config, plan))
        plan.host_settings.push_back({{"net", "ipv6", "conf", plan.host_ifname, "disable_ipv6"}, "1"});
    if (!is_none(plan.link_local)) {
        const ip_addr own = link_local_from_mac(plan.host_mac);
        plan.host_settings.push_back({{"net", "ipv6", "conf", plan.host_ifname, "disable_ipv6"}, "0"});
        plan.host_addresses.push_back({{own, 128}, net::kNoDad | net::kNoPrefixRoute, net::kScopeLink});
        plan.host_routes.push_back({.destination = masked({own, 64}), .append = true});
    }
    for (const ip_addr &addr : plan.addresses) {
        plan.host_routes.push_back({.destination = host_prefix(addr)});
        plan.host_neighbours.push_back({addr, plan.pod_mac, true});
    }
}

// Whoever made the interface.
Result<void> plan_services(const cni::Request &request, std::vector<Prefix> leased, const NodeFacts &node, Plan &plan) {
    const cni::Config &config = request.config;
    plan.ifname = request.ifname;
    plan.netns = request.netns;
    plan.hook_kind = node.hook_kind;
    plan.flags |= node.flags;
    const bool wants_edt = config.limiter == cni::Limiter::automatic || config.limiter == cni::Limiter::edt;
    plan.qdisc = wants_edt && config.bandwidth && config.bandwidth->ingress_rate != 0 ? "fq" : "";
    plan.pod_qdisc = may_shape(plan.mode, plan.flags) ? "htb" : "";
    plan.masquerade = node.masquerade;
    plan.masqueraded = std::move(leased);
    plan.egress_sets = egress_sets_of(config);
    plan.network = TRY(plan_network(config, node));
    plan.ipam_type = config.ipam_type;
    plan.uplink = node.egress_route ? node.egress_route->uplink.ifindex : 0;
    return {};
}

// Pods of one bridge reach each other by their MACs: what one of them sends past the bridge, the other would answer by
// it.
std::uint32_t flags_beside(const cni::Request &request, const AdoptedPair &pair, std::size_t address_count) {
    std::uint32_t flags = interface_flags_of(request.config, address_count);
    if (pair.has_foreign_qdisc)
        flags &= ~(std::uint32_t{INTERFACE_FAST_LOCAL} | INTERFACE_FAST_UPLINK);
    if (pair.is_bridge_port)
        flags &= ~std::uint32_t{INTERFACE_FAST_LOCAL};
    else
        flags |= INTERFACE_ROUTED;
    if (pair.router_mac == Mac{})
        flags = (flags & ~std::uint32_t{INTERFACE_FAST_UPLINK}) | INTERFACE_BRIDGED;
    return flags;
}

// Routes and name servers of the configuration, beside the lease's.
void add_configured(const cni::Config &config, Plan &plan) {
    std::ranges::copy(config.routes, std::back_inserter(plan.result.routes));
    // Drop routes of address families the pod has no address in.
    std::erase_if(plan.result.routes, [&](const cni::Route &route) {
        const auto of_family = [&](const ip_addr &addr) { return is_ipv4(addr) == is_ipv4(route.destination.addr); };
        return std::ranges::none_of(plan.addresses, of_family);
    });
    if (plan.result.dns.nameservers.empty())
        plan.result.dns = config.dns;
    plan.result.dns = config.runtime_dns.value_or(plan.result.dns);
    for (cni::Route &route : plan.result.routes) {
        const bool is_possible = is_ipv4(route.destination.addr) || plan.mtu >= kSmallestIpv6Mtu;
        if (config.pod_mtu && route.mtu && is_possible) // the pod has lowered the interface's, and not those of routes
            route.mtu = std::min(*route.mtu, plan.mtu);
    }
}

void plan_result(const cni::Request &request, const std::vector<cni::Address> &leased, Plan &plan) {
    cni::Attachment &result = plan.result;
    const std::size_t pod_index = result.interfaces.size() + 1;
    result.interfaces.push_back({.name = plan.host_ifname, .mac = to_string(plan.host_mac), .mtu = plan.mtu});
    result.interfaces.push_back(
        {.name = request.ifname, .mac = to_string(plan.pod_mac), .sandbox = request.netns, .mtu = plan.mtu});
    result.addresses.clear();
    for (const cni::Address &one : leased)
        result.addresses.push_back({host_prefix(one.prefix.addr),
                                    one.gateway ? one.gateway : own_gateway(is_ipv4(one.prefix.addr)), pod_index});
}

} // namespace

ip_addr own_gateway(bool ipv4) {
    if (ipv4)
        return ipv4_from_host_order(PODLANE_GATEWAY_IPV4);
    return {{htonl(PODLANE_GATEWAY_IPV6_0), 0, htonl(PODLANE_GATEWAY_IPV6_2), htonl(PODLANE_GATEWAY_IPV6_3)}};
}

std::string host_ifname(const cni::Request &request) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567"; // RFC 4648, base 32
    constexpr unsigned kBits = 5;
    std::string name = request.config.host_interface_prefix;
    for (std::uint64_t hash = identity_hash(request); name.size() < ENDPOINT_IFNAME_SIZE - 1; hash >>= kBits)
        name += kLetters[hash % kLetters.size()];
    return name;
}

std::string alias_of(const cni::Request &request) {
    return std::string(kAliasPrefix) + request.container_id + " " + request.ifname;
}

std::uint32_t interface_flags_of(const cni::Config &config, std::size_t address_count) {
    std::uint32_t flags = 0;
    if (config.fast_path != cni::FastPath::off)
        flags |= INTERFACE_FAST_LOCAL;
    if (config.fast_path == cni::FastPath::on)
        flags |= INTERFACE_FAST_UPLINK;
    const bool is_isolated = config.isolation.by != cni::IsolateBy::none;
    // Neither conntrack nor the rules of `egress` see first packets that are direct.
    if (config.first_packet_direct && !is_isolated && !config.egress_in_cluster)
        flags |= INTERFACE_FIRST_DIRECT;
    if (is_isolated)
        flags |= config.isolation.by == cni::IsolateBy::group ? INTERFACE_ISOLATED_GROUP : INTERFACE_ISOLATED_NETWORK;
    if (config.anti_spoof)
        flags |= INTERFACE_ANTI_SPOOF;
    if (!config.allowed_sources.empty())
        flags |= INTERFACE_ALLOWED_SOURCES;
    flags |= config.allowed_ether_types;
    if (config.bandwidth && config.bandwidth->ingress_rate != 0)
        flags |= INTERFACE_LIMIT_INGRESS;
    if (config.bandwidth && config.bandwidth->egress_rate != 0)
        flags |= INTERFACE_LIMIT_EGRESS;
    if (!config.limit_group.empty())
        flags |= INTERFACE_LIMIT_GROUP;
    flags |= limiter_flags_of(config.limiter);
    if (std::ranges::any_of(config.limited_prefixes,
                            [](const auto &of) { return !of.shaped.empty() || !of.unshaped.empty(); }))
        flags |= INTERFACE_LIMIT_EXEMPT;
    if (address_count > 1)
        flags |= INTERFACE_MORE_ADDRESSES;
    return flags;
}

std::vector<cni::Address> addresses_of(const cni::Attachment &result, const std::string &ifname) {
    std::vector<cni::Address> own;
    for (const cni::Address &one : result.addresses) {
        if (one.interface) {
            const cni::Interface &owner = result.interfaces.at(*one.interface);
            if (owner.sandbox.empty() || owner.name != ifname)
                continue;
        }
        if (std::ranges::none_of(own, [&](const cni::Address &other) { return other.prefix.addr == one.prefix.addr; }))
            own.push_back(one);
    }
    return own;
}

std::vector<Prefix> prefixes_of(const cni::Attachment &result, const std::string &ifname) {
    std::vector<Prefix> prefixes;
    for (const cni::Address &one : addresses_of(result, ifname))
        prefixes.push_back(one.prefix);
    return prefixes;
}

Result<endpoint_mode> mode_of(const cni::Request &request) {
    if (!request.config.ipam_type.empty())
        return ENDPOINT_MAIN;
    if (!request.config.prev_result)
        return Error{ErrorCode::invalid_network_config, "the configuration has neither \"ipam\" nor \"prevResult\"",
                     "add \"ipam\", or put Podlane behind an IPAM or a main plugin in the list"};
    const auto in_container = [&](const cni::Interface &one) {
        return !one.sandbox.empty() && one.name == request.ifname;
    };
    return std::ranges::any_of(request.config.prev_result->interfaces, in_container) ? ENDPOINT_AFTER_MAIN
                                                                                     : ENDPOINT_AFTER_IPAM;
}

NodeFacts recorded_facts(const endpoint &record) {
    return {.mtu = record.mtu,
            .hook_kind = hook_kind_of(record.attach),
            .masquerade = static_cast<endpoint_masquerade>(record.masquerade),
            .flags = record.flags & (INTERFACE_NO_DEFAULT_IPV4 | INTERFACE_NO_DEFAULT_IPV6)};
}

Result<std::vector<ip_addr>> adopted_addresses(const cni::Request &request) {
    std::vector<ip_addr> addresses;
    for (const cni::Address &one : addresses_of(*request.config.prev_result, request.ifname))
        addresses.push_back(one.prefix.addr);
    if (addresses.empty() || addresses.size() > ENDPOINT_ADDRESSES)
        return Error{ErrorCode::invalid_network_config, "prevResult gives " + std::to_string(addresses.size()) +
                                                            " addresses to " + request.ifname + ", 1 to " +
                                                            std::to_string(ENDPOINT_ADDRESSES) + " are supported"};
    TRY(check_adopted(addresses));
    return addresses;
}

Result<Plan> make_plan_beside(const cni::Request &request, const AdoptedPair &pair, const NodeFacts &node) {
    Plan plan{.mode = ENDPOINT_AFTER_MAIN, .host_ifname = pair.host_ifname};
    plan.addresses = TRY(adopted_addresses(request));
    plan.pod_mac = pair.pod_mac;
    plan.host_mac = pair.router_mac;
    plan.mtu = pair.mtu;
    plan.link_local = pair.link_local;
    plan.flags = flags_beside(request, pair, plan.addresses.size());
    TRY(plan_services(request, prefixes_of(*request.config.prev_result, request.ifname), node, plan));
    if (node.egress_route && (plan.flags & INTERFACE_BRIDGED) != 0)
        return Error{ErrorCode::unsupported_field,
                     pair.host_ifname +
                         " is a port of a bridge that does not route for it: nothing of the network passes " +
                         node.egress_route->uplink.name + " by the node's routes",
                     "take \"uplink\" out, or give the bridge the gateway's address (isGateway)"};
    if (request.config.source_routing && (plan.flags & INTERFACE_BRIDGED) != 0)
        plan.flags |= INTERFACE_POD_RULES;
    plan.result = *request.config.prev_result;
    plan.ifindex = pair.ifindex;
    plan.pod_ifindex = pair.pod_ifindex;
    return plan;
}

Plan make_plan_without_host_veth(const net::Link &link, std::uint64_t netns_inode, std::vector<ip_addr> addresses) {
    Plan plan{.mode = ENDPOINT_AFTER_MAIN, .ifname = link.name};
    plan.hook_kind = HookKind::clsact;
    plan.netns_inode = netns_inode;
    plan.pod_ifindex = link.ifindex;
    plan.pod_mac = link.mac;
    plan.mtu = link.mtu;
    plan.flags = INTERFACE_POD_RULES;
    plan.addresses = std::move(addresses);
    return plan;
}

bool has_mtu_for(std::span<const ip_addr> addresses, std::uint32_t mtu) {
    return mtu >= kSmallestIpv6Mtu || std::ranges::all_of(addresses, is_ipv4);
}

std::string mtu_is_too_small(const std::string &place, std::uint32_t mtu) {
    return place + " has MTU " + std::to_string(mtu) + ", and IPv6 takes at least " + std::to_string(kSmallestIpv6Mtu);
}

Result<Plan> make_plan(const cni::Request &request, const cni::Attachment &lease, const NodeFacts &node) {
    const cni::Config &config = request.config;
    const std::vector<cni::Address> leased = addresses_of(lease, request.ifname);
    Plan plan{.mode = config.ipam_type.empty() ? ENDPOINT_AFTER_IPAM : ENDPOINT_MAIN};
    plan.addresses = TRY(endpoint_addresses(config, leased));
    plan.host_ifname = host_ifname(request);
    plan.alias = alias_of(request);
    plan.pod_mac = pod_mac_of(request);
    plan.host_mac = kHostMac;
    plan.mtu = config.mtu.value_or(node.mtu);
    if (config.pod_mtu)
        plan.mtu = std::min(plan.mtu == 0 ? kVethMtu : plan.mtu, *config.pod_mtu);
    plan.flags = interface_flags_of(config, plan.addresses.size()) | INTERFACE_GATEWAY | INTERFACE_ROUTED | node.flags;
    plan.result = lease;
    add_configured(config, plan);
    TRY(check_routes(plan.result.routes));
    const bool has_ipv4 = std::ranges::any_of(plan.addresses, is_ipv4);
    const bool has_ipv6 = !std::ranges::all_of(plan.addresses, is_ipv4);
    if (plan.mtu != 0 && !has_mtu_for(plan.addresses, plan.mtu))
        return Error{ErrorCode::invalid_network_config, "mtu " + std::to_string(plan.mtu) +
                                                            " is too small for the lease's IPv6 address (RFC 8200: " +
                                                            std::to_string(kSmallestIpv6Mtu) + ")"};
    if (has_ipv4)
        plan_routes(request, leased, true, plan);
    if (has_ipv6) {
        plan.link_local = link_local_from_mac(plan.pod_mac);
        plan_routes(request, leased, false, plan);
    }
    plan_pod(request, plan);
    plan_host(config, plan);
    TRY(plan_services(request, prefixes_of(lease, request.ifname), node, plan));
    plan_result(request, leased, plan);
    return plan;
}

} // namespace podlane
