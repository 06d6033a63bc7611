// SPDX-License-Identifier: MIT
// Routing rules that come before the main table: on the node, which has the routes to pods there, and in a container.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/net/rule.hpp"
#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace podlane {

// As they are when the first pod of a family is looked at.
class NodeRules {
  public:
    explicit NodeRules(net::Netlink &host) : host_(host) {}

    // ErrorCode::check_failed, with the remedy, of a rule that leads packets to the pod to another interface than the
    // host-side veth, or refuses them. Rules for some of them (by source, mark, interface, protocol) are left out: they
    // are an administrator's policy.
    Result<std::optional<Error>> find_foreign(const ip_addr &pod, std::uint32_t host_veth);

  private:
    Result<const std::vector<net::FoundRule> *> rules_of(net::Family family);

    net::Netlink &host_;
    std::map<net::Family, std::vector<net::FoundRule>> rules_{};
};

// ErrorCode::check_failed, with the remedy, of a container whose rules refuse packets to all that no route of its own
// leads to, or look up no main table. `netns`: its namespace's path.
Result<std::optional<Error>> find_refusing_rule(net::Netlink &pod, const std::string &netns, net::Family family);

} // namespace podlane
