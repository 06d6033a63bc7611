// SPDX-License-Identifier: MIT
#include "loader/edt.hpp"

#include "loader/net/qdisc.hpp"
#include "maps/abi/limit_math.h"

#include <algorithm>
#include <cerrno>

namespace podlane {
namespace {

// The shortest Ethernet frame with an IP packet, as the kernel has it.
constexpr std::uint64_t kSmallestPacket = 42;
constexpr std::uint64_t kLeastPackets = 50'000, kMostPackets = 150'000; // 115 MB of short ones
// A GSO packet of the largest kind, which a queue for few frames takes as well.
constexpr std::uint64_t kLargestPacket = 262144;

// Twice the bytes that the bucket admits.
std::uint64_t most_bytes(std::uint64_t rate, std::uint64_t burst) {
    limit given{};
    make_limit(&given, std::max<std::uint64_t>(rate, 1), burst);
    return edt_bytes_per_s(rate) / 1000 * 2 * (given.horizon_ns / NS_PER_MS);
}

/*
 * The bucket decides what is dropped: it admits no more than a burst ahead of the rate. The class may be late, when its
 * timer is, and makes up for it as far as its own burst goes. Packets that are late beyond that wait in its queue
 * longer than the bucket knows; the queue's end bounds that.
 */
net::HtbSpec htb_for(std::uint32_t ifindex, std::uint64_t rate, std::uint64_t burst) {
    limit given{};
    make_limit(&given, std::max<std::uint64_t>(rate, 1), burst);
    return {ifindex, LIMIT_QDISC, LIMIT_CLASS, edt_bytes_per_s(rate), given.target_ns, edt_queue_bytes(rate, burst)};
}

// Another qdisc on the loopback interface, where it is tried, has the kernel say EEXIST, whatever it knows.
Result<bool> unless_taken(Result<bool> has) {
    return !has && has.error().system_errno == EEXIST ? Result<bool>(false) : has;
}

} // namespace

Result<std::string> edt_qdisc() {
    net::Netlink netlink = TRY(net::Netlink::open());
    if (TRY(unless_taken(net::has_fq(netlink))))
        return std::string("fq");
    return std::string(TRY(unless_taken(net::has_htb(netlink))) ? "htb" : "");
}

std::uint64_t edt_bytes_per_s(std::uint64_t rate_bits_per_s) {
    return std::max<std::uint64_t>(std::min<std::uint64_t>(rate_bits_per_s, HIGHEST_RATE) / 8, 1);
}

std::uint64_t edt_queue_bytes(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    return most_bytes(rate_bits_per_s, burst_bits) + kLargestPacket;
}

Result<std::string> put_edt(std::uint32_t ifindex, std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    net::Netlink netlink = TRY(net::Netlink::open());
    const std::uint64_t packets = most_bytes(rate_bits_per_s, burst_bits) / kSmallestPacket;
    if (TRY(net::set_fq(netlink, {ifindex, LIMIT_QDISC,
                                  static_cast<std::uint32_t>(std::clamp(packets, kLeastPackets, kMostPackets))})))
        return std::string("fq");
    const bool put = TRY(net::set_htb(netlink, htb_for(ifindex, rate_bits_per_s, burst_bits)));
    return std::string(put ? "htb" : "");
}

Result<void> remove_edt(std::uint32_t ifindex) {
    net::Netlink netlink = TRY(net::Netlink::open());
    TRY(net::remove_root_qdisc(netlink, ifindex, LIMIT_QDISC));
    return {};
}

} // namespace podlane
