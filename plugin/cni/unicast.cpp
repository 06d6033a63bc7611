// SPDX-License-Identifier: MIT
#include "plugin/cni/unicast.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace podlane::cni {

bool is_unicast(const ip_addr &addr) {
    const std::array<Prefix, 6> others{{{ipv4_from_host_order(0), 8},
                                        {ipv4_from_host_order(127U << 24U), 8},
                                        {ipv4_from_host_order(224U << 24U), 4},
                                        {ipv4_from_host_order(~0U), 32},
                                        {ip_addr{}, 127}, // :: and ::1
                                        {{{htonl(0xff000000U), 0, 0, 0}}, 8}}};
    return std::ranges::none_of(others, [&](const Prefix &one) { return contains(one, addr); });
}

} // namespace podlane::cni
