// What the kernel says of an interface of this network namespace, now.
#pragma once

#include <cstdint>
#include <string>

namespace podlane::ctl {

struct LinkState {
    bool there = false; // false: no interface has this ifindex here
    std::string name{};
    bool admin_up = false;
    bool carrier = false;
    std::uint32_t mtu = 0;
    std::string mac{};
};

LinkState link_state(std::uint32_t ifindex);

} // namespace podlane::ctl
