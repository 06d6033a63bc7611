// SPDX-License-Identifier: MIT
// Compares an attachment with its plan: links, addresses, routes, neighbours, programs, map entries, NAT, the network.
// CHECK, doctor and repair all judge by it.
#pragma once

#include "loader/attach.hpp"
#include "loader/foreign_rule.hpp"
#include "loader/host_route.hpp"
#include "loader/net/netlink.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/plan.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

using FindAttached = std::function<Result<std::vector<Attached>>(std::uint32_t ifindex, Hook hook)>;

// An error unless `ours`, Podlane's programs on the hook, are the pinned one, whose ID is `id`, and no other.
Result<void> check_hook(const endpoint &record, const HookProgram &planned, std::uint32_t id,
                        const std::vector<Attached> &ours);

// Keeps what attachments have in common: the pinned programs, the node's rules and routes, and the networks that were
// compared already.
class Verifier {
  public:
    Verifier(net::Netlink &host, const Tables &tables, FindAttached find_attached = &attached)
        : host_(host), tables_(tables), find_attached_(std::move(find_attached)), rules_(host), routes_(host) {}

    // `request` has the result of the ADD as its prev_result, and `leased` those of its routes that Podlane's ADD saw:
    // later plugins may have added others; `stored` is the entry in endpoints_v1; `pod` is a socket
    // in the container's namespace. Only a record says of which groups the container is a member: without one these are
    // not compared. ErrorCode::check_failed names the first difference that no later plugin may rightly
    // have made, and the egress route.
    Result<void> verify(const cni::Request &request, const endpoint &stored, net::Netlink &pod,
                        const std::vector<cni::Route> &leased, bool has_groups = true);

  private:
    Result<void> check_programs(const std::string &root, const endpoint &record);
    Result<void> check_network_once(const cni::Request &request, const endpoint &record);

    net::Netlink &host_;
    const Tables &tables_;
    FindAttached find_attached_;
    NodeRules rules_;
    HostRoutes routes_;
    std::string root_{};                             // of the programs
    std::vector<std::uint32_t> programs_{};          // their IDs, in the order of kPodPrograms
    std::map<std::string, Result<void>> networks_{}; // by name and cluster CIDRs
};

} // namespace podlane
