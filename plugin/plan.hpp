// SPDX-License-Identifier: MIT
// What one attachment should look like, worked out from the request and the lease alone: ADD makes it so, CHECK
// compares it with the kernel.
#pragma once

#include "maps/abi/endpoint.h"
#include "maps/abi/interface.h"
#include "plugin/cni/types.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/route.hpp"

#include <string>
#include <vector>

namespace podlane {

struct Plan {
    std::string host_ifname;
    std::string alias; // of the host-side veth: whose it is, in words
    Mac pod_mac{};
    Mac host_mac{};
    std::uint32_t mtu = 0;
    std::uint32_t flags = 0; // enum interface_flags
    std::vector<ip_addr> addresses;
    ip_addr link_local{};                   // of the pod; none without IPv6
    std::vector<net::RouteSpec> pod_routes; // without ifindex, in the order in which they are added
    std::vector<net::Neighbour> pod_neighbours;
    cni::Attachment result;
};

// The container's interface and its host-side veth made by Podlane. `lease` is the IPAM plugin's result, delegated or
// chained before us; mtu is the uplink's, used where the configuration names none.
Result<Plan> make_plan(const cni::Request &request, const cni::Attachment &lease, std::uint32_t mtu);

// How the request is to be served (CNI spec, section 5: chained plugins).
Result<endpoint_mode> mode_of(const cni::Request &request);

// "caliqlzj3ufs2wt": the prefix and a hash of container ID and interface name.
std::string host_ifname(const cni::Request &request);
std::string alias_of(const cni::Request &request);

// Of these, what is said of the tools that hold limits.
std::uint32_t limiter_flags_of(cni::Limiter limiter);

// enum interface_flags a configuration asks for, whoever made the interface.
std::uint32_t interface_flags_of(const cni::Config &config, std::size_t address_count);

// The addresses prevResult gives to the container's interface; those without an interface index count too.
std::vector<cni::Address> addresses_of(const cni::Attachment &result, const std::string &ifname);
// Those addresses alone.
std::vector<Prefix> prefixes_of(const cni::Attachment &result, const std::string &ifname);

} // namespace podlane
