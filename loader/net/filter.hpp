// SPDX-License-Identifier: MIT
// Classic TC filters on the clsact hooks of a link: who else is there.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane::net {

struct Filter {
    std::string kind; // "bpf", "flower", …
    std::string name; // of a bpf filter, as its owner calls it
    std::uint32_t program_id = 0;
    std::uint32_t priority = 0; // the lowest runs first
    std::uint32_t handle = 0;
};

enum class ClsactSide { ingress, egress };

// None if there is no clsact, or no such link.
Result<std::vector<Filter>> list_filters(Netlink &netlink, std::uint32_t ifindex, ClsactSide side);

} // namespace podlane::net
