// Chained after another main plugin: finds the host end of its veth pair and makes it an endpoint of ours.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/net/link.hpp"
#include "plugin/net/namespace.hpp"
#include "plugin/rollback.hpp"
#include "plugin/way.hpp"

#include <string>

namespace podlane {

// Route netlink of the host's and of the container's namespace.
struct Sockets {
    net::Netlink host;
    net::Netlink pod;
};

// The result is prevResult, unchanged: addressing is the other plugin's.
Result<cni::Attachment> adopt_interface(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                                        const Tables &tables, const std::optional<Way> &way, Rollback &rollback);

// CNI_NETNS; where it is no network namespace (any more) the error has the spec's code 4 and names the variable.
Result<net::Namespace> open_container(const cni::Request &request);

// Both ends of the pair behind the container's interface. An interface without a veth host end is an error.
struct Adopted {
    net::Link pod;
    net::Link host;
};
Result<Adopted> find_pair(Sockets &sockets, const std::string &ifname);

// Puts the pinned programs on both hooks of a host end.
Result<void> attach_programs(const std::string &root, std::uint32_t ifindex, HookKind kind);

} // namespace podlane
