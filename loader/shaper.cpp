// SPDX-License-Identifier: MIT
#include "loader/shaper.hpp"

#include "loader/net/shaper.hpp"
#include "maps/abi/limit_math.h"

#include <algorithm>

namespace podlane {
namespace {

// The bucket at the other end, which charges what passes the shaper by as well, has nothing to catch up with.
constexpr std::uint64_t kPercent = 99;

net::ShaperSpec shaper_for(std::uint32_t ifindex, std::uint64_t rate, std::uint64_t burst) {
    limit given{};
    make_limit(&given, std::max<std::uint64_t>(rate, 1), burst);
    return {ifindex, LIMIT_QDISC, shaper_bytes_per_s(rate), given.target_ns};
}

} // namespace

std::uint64_t shaper_bytes_per_s(std::uint64_t rate_bits_per_s) {
    return std::max<std::uint64_t>(std::min<std::uint64_t>(rate_bits_per_s, HIGHEST_RATE) / 8 * kPercent / 100, 1);
}

Result<bool> put_shaper(net::Netlink &pod, std::uint32_t pod_ifindex, const bandwidth &limits) {
    return net::set_shaper(pod, shaper_for(pod_ifindex, limits.egress_rate_bits_per_s, limits.egress_burst_bits));
}

Result<void> open_shaper(net::Netlink &pod, std::uint32_t pod_ifindex) {
    TRY(net::change_shaper(pod, shaper_for(pod_ifindex, HIGHEST_RATE, AUTO_BURST_BITS)));
    return {};
}

} // namespace podlane
