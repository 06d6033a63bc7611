// SPDX-License-Identifier: MIT
// The planned state of one attachment, worked out from the request and the lease alone: ADD makes it so, CHECK
// compares it with the kernel.
#pragma once

#include "maps/abi/endpoint.h"
#include "loader/attach.hpp"
#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/route.hpp"
#include "loader/net/sysctl.hpp"
#include "maps/abi/interface.h"
#include "maps/abi/limit.h"
#include "maps/abi/names.h"
#include "maps/abi/network.h"
#include "plugin/cni/types.hpp"
#include "plugin/egress_route.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

// Facts of the node that a plan depends on beside request and lease: read before, and nothing is decided there.
struct NodeFacts {
    std::uint32_t mtu = 0; // the uplink's, used if the configuration names none
    HookKind hook_kind = HookKind::tcx;
    endpoint_masquerade masquerade = ENDPOINT_MASQUERADE_NONE; // the tool that masquerades here
    std::optional<EgressRoute> egress_route{};
    std::uint32_t flags = 0; // enum interface_flags: what the container's other interfaces and the kernel add
};

// Those of the ADD that wrote the record.
NodeFacts recorded_facts(const endpoint &record);

// A limit that the attachment shares with other pods of its network.
struct LimitGroupPlan {
    std::uint32_t number = 0;    // limit_group_number()
    struct limit_group entry {}; // in limit_groups_v1
};

// A network as an attachment needs it on the node.
struct NetworkPlan {
    std::uint32_t id = 0;               // network_id() of its name
    struct network entry {};            // in networks_v1
    std::vector<std::string> uplinks{}; // names and patterns; none: those of the default routes
    std::vector<Prefix> cluster_cidrs{};
    std::optional<LimitGroupPlan> limit_group{};
    bool own_address_rules = false; // loader/own_addresses.hpp
    bool is_tracked = false;        // by a rule that has the kernel track connections
};

struct Setting {
    net::SysctlPath path;
    std::string value;
    bool required = false; // an error if the kernel does not have it
};

// "net.ipv4.conf.eth0/100.forwarding": '/' stands for a dot in a name.
net::SysctlPath sysctl_path(std::string_view name);

// Present on every host-side veth.
struct HookProgram {
    Hook hook;
    const char *name;
};
inline constexpr std::array<HookProgram, 2> kPodPrograms = {
    {{Hook::ingress, PODLANE_PROGRAM_FROM_POD}, {Hook::egress, PODLANE_PROGRAM_TO_POD}}};

struct Plan {
    endpoint_mode mode = ENDPOINT_MAIN;
    std::string ifname{}; // in the container
    std::string netns{};  // CNI_NETNS
    std::string host_ifname{};
    std::string alias{}; // of the host-side veth: whose it is, in words
    Mac pod_mac{};
    Mac host_mac{};
    std::uint32_t mtu = 0;
    std::uint32_t flags = 0; // enum interface_flags
    std::vector<ip_addr> addresses{};
    ip_addr link_local{}; // of the pod; none without IPv6
    // In the container. Routes have no ifindex, here and on the host, and are in the order in which they are added.
    std::vector<Setting> pod_settings{};
    std::vector<net::Address> pod_addresses{};
    std::vector<net::RouteSpec> pod_routes{};
    std::vector<net::Neighbour> pod_neighbours{};
    // On the host-side veth, and of the node.
    std::vector<Setting> node_settings{};
    std::vector<Setting> host_settings{};
    std::vector<net::Address> host_addresses{};
    std::vector<net::RouteSpec> host_routes{};
    std::vector<net::Neighbour> host_neighbours{};
    HookKind hook_kind = HookKind::tcx;
    std::string pod_qdisc{}; // of the container's interface, for the egress limit
    std::string qdisc{};     // of the host-side veth, for earliest departure times; htb if the kernel has no fq
    endpoint_masquerade masquerade = ENDPOINT_MASQUERADE_NONE;
    std::vector<Prefix> masqueraded{};       // or kept from it, if that is none
    std::vector<const char *> egress_sets{}; // of nftables, that the host-side veth is put into
    NetworkPlan network{};
    std::string ipam_type{};  // whose lease is released in the end; empty: none of Podlane's
    std::uint32_t uplink = 0; // ifindex, of the network's egress route; its neighbours are notified of the addresses
    cni::Attachment result{};
    // Known once the interface exists.
    std::uint64_t netns_inode = 0;
    std::uint32_t node_netns = 0;
    std::uint32_t ifindex = 0; // of the host-side veth; 0: none
    std::uint32_t pod_ifindex = 0;
    std::optional<std::int32_t> netns_id{}; // the kernel's
};

// The kernel takes IPv6 off an interface with a smaller MTU (RFC 8200, section 5).
inline constexpr std::uint32_t kSmallestIpv6Mtu = 1280;
bool has_mtu_for(std::span<const ip_addr> addresses, std::uint32_t mtu);
std::string mtu_is_too_small(const std::string &place, std::uint32_t mtu);

// Of the node, for pods with these addresses.
std::vector<Setting> node_settings_of(std::span<const ip_addr> addresses);
// Of the container's namespace as a whole.
std::vector<Setting> pod_settings_of(const cni::Config &config, const Plan &plan);

// The container's interface and its host-side veth made by Podlane. `lease` is the IPAM plugin's result, delegated or
// chained before us.
Result<Plan> make_plan(const cni::Request &request, const cni::Attachment &lease, const NodeFacts &node);

// A veth pair of another plugin, as it was found.
struct AdoptedPair {
    std::string host_ifname;
    std::uint32_t ifindex = 0; // of the host-side veth
    std::uint32_t pod_ifindex = 0;
    Mac pod_mac{};
    Mac router_mac{}; // whoever routes what the pod sends: the host-side veth or its bridge; none: neither
    bool is_bridge_port = false;
    bool has_foreign_qdisc = false; // packets on the fast path would bypass it
    std::uint32_t mtu = 0;
    ip_addr link_local{};
};
// Addressing is the other plugin's: the result is prevResult, unchanged.
Result<Plan> make_plan_beside(const cni::Request &request, const AdoptedPair &pair, const NodeFacts &node);

// "egress": "cluster": those that limit what the pod may send, and none without.
std::vector<const char *> egress_sets_of(const cni::Config &config);

// An interface without a host-side veth, as it was found: rules in the container are all that there is.
Plan make_plan_without_host_veth(const net::Link &link, std::uint64_t netns_inode, std::vector<ip_addr> addresses);

// Names and patterns of the network's uplinks: those of the configuration and that of the egress route.
std::vector<std::string> uplinks_of(const cni::Config &config, const std::optional<EgressRoute> &egress_route);
Result<NetworkPlan> plan_network(const cni::Config &config, const NodeFacts &node);

// Addresses of the interface in prevResult: at least one, at most as many as an endpoint has room for.
Result<std::vector<ip_addr>> adopted_addresses(const cni::Request &request);

// How the request is to be served (CNI spec, section 5: chained plugins).
Result<endpoint_mode> mode_of(const cni::Request &request);

// The gateway of every interface that Podlane makes: its host-side veth answers for it.
ip_addr own_gateway(bool ipv4);

// "caliqlzj3ufs2wt": the prefix and a hash of container ID and interface name.
std::string host_ifname(const cni::Request &request);
std::string alias_of(const cni::Request &request);

// Of these, what is said of the tools that hold limits.
std::uint32_t limiter_flags_of(cni::Limiter limiter);

// The enum interface_flags that a configuration sets, whichever plugin created the interface.
std::uint32_t interface_flags_of(const cni::Config &config, std::size_t address_count);

// Whether the network's connections take the fast path as conntrack says, or isolation does. By the flags (INTERFACE_*)
// of one of its pods; `firstPacket` alone does not say it.
bool follows_conntrack(std::uint32_t interface_flags);
bool follows_conntrack(const cni::Config &config);

// The addresses prevResult gives to the container's interface, each once; those without an interface index count too.
std::vector<cni::Address> addresses_of(const cni::Attachment &result, const std::string &ifname);
// Those addresses alone.
std::vector<Prefix> prefixes_of(const cni::Attachment &result, const std::string &ifname);

} // namespace podlane
