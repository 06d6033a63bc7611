// SPDX-License-Identifier: MIT
// Chained after another main plugin: finds the host-side veth of its veth pair and makes it an endpoint of Podlane.
#pragma once

#include "loader/attach.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/endpoint.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "plugin/rollback.hpp"
#include "plugin/egress_route.hpp"

#include <string>

namespace podlane {

// Route netlink of the host's and of the container's namespace.
struct Sockets {
    net::Netlink host;
    net::Netlink pod;
};

// CNI_NETNS; if it is no network namespace (any more) the error has the spec's code 4 and names the variable.
Result<net::Namespace> open_container(const cni::Request &request);
// A socket in it, for the request and the endpoint on record; ErrorCode::missing if their ADD found another one there.
Result<net::Netlink> open_recorded(const net::Namespace &container, const cni::Request &recorded,
                                   const endpoint &entry);

// Another plugin's interface, with its host-side veth if it has one: the other end of a veth pair, in the host's
// namespace.
struct Adopted {
    net::Link pod;
    std::optional<net::Link> host;
};
// An error if it is another attachment's, or not the one that the plugin before made.
Result<Adopted> find_pair(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                          const Tables &tables);

// For a pair with a host-side veth. The result is prevResult, unchanged: addressing is the other plugin's.
Result<cni::Attachment> adopt_interface(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                                        const Tables &tables, const Adopted &pair,
                                        const std::optional<EgressRoute> &egress, Rollback &rollback);

// Attaches the pinned programs to both hooks of a host-side veth.
Result<void> attach_programs(const std::string &root, std::uint32_t ifindex, HookKind kind);

} // namespace podlane
