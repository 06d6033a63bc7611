// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the reader of claims: frames of ARP and neighbour discovery that others on the link send while
// an ADD probes addresses. The bytes are a frame, and the addresses and the message of one that is otherwise right.
#include "loader/net/claim.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using namespace podlane;

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kIpv6 = 14;
constexpr std::size_t kHopLimit = kIpv6 + 7;
constexpr std::size_t kAddresses = kIpv6 + 8;
constexpr std::size_t kMessage = kIpv6 + 40;

bool operator==(const net::Claim &one, const net::Claim &other) {
    return one.addr == other.addr && one.mac == other.mac;
}

bool are_at(const Bytes &frame, std::size_t at, const void *bytes, std::size_t size) {
    return at + size <= frame.size() && std::memcmp(frame.data() + at, bytes, size) == 0;
}
bool is_type(const Bytes &frame, std::uint8_t high, std::uint8_t low) { return frame[12] == high && frame[13] == low; }

// Both are in the frame where they belong.
void check_arp(const Bytes &frame, const net::Claim &claim) {
    require(is_type(frame, 0x08, 0x06) && is_ipv4(claim.addr));
    require(are_at(frame, 28, &claim.addr.word[3], 4) && are_at(frame, 22, claim.mac.data(), claim.mac.size()));
    require(!net::claim_in({frame.data(), 41})); // the last byte of ARP is missing
}

// A router lowers the hop limit, and a checksum shows each single bit that changes.
void check_advertisement(const Bytes &frame, const net::Claim &claim) {
    require(is_type(frame, 0x86, 0xdd) && !is_ipv4(claim.addr));
    require(are_at(frame, 62, &claim.addr, 16) && are_at(frame, 6, claim.mac.data(), claim.mac.size()));
    const std::size_t end = kMessage + static_cast<std::size_t>(frame[kIpv6 + 4] << 8U | frame[kIpv6 + 5]);
    require(end <= frame.size() && !net::claim_in({frame.data(), end - 1}));
    require(frame[kHopLimit] == 255);
    Bytes changed = frame;
    for (std::size_t at = kAddresses; at < std::min(end, kAddresses + 128); ++at) {
        changed[at] ^= 1U << at % 8;
        require(!net::claim_in(changed));
        changed[at] = frame[at];
    }
    changed[kHopLimit] = 254;
    require(!net::claim_in(changed));
}

void check(const Bytes &frame) {
    const auto claim = net::claim_in(frame);
    if (!claim)
        return;
    if (is_ipv4(claim->addr))
        check_arp(frame, *claim);
    else
        check_advertisement(frame, *claim);
    Bytes padded = frame;
    padded.insert(padded.end(), 7, 0xaa);
    const auto again = net::claim_in(padded);
    require(again && *again == *claim);

    Mac own = claim->mac;
    const std::array probed{claim->addr};
    require(!net::foreign_claim(frame, own, probed) && !net::foreign_claim(frame, {}, {}));
    own[5] ^= 1U;
    const auto foreign = net::foreign_claim(frame, own, probed);
    require(foreign && *foreign == *claim);
    std::array others{claim->addr};
    others[0].word[3] ^= 1U;
    require(!net::foreign_claim(frame, own, others));
}

// The bytes are source, destination and message; lengths and checksum are made to fit.
void check_message(const Bytes &input) {
    constexpr std::size_t kChecksum = 2;
    constexpr std::size_t kBoth = 32;
    if (input.size() < kBoth + 4 || input.size() > kBoth + 0xffff)
        return;
    const std::size_t size = input.size() - kBoth;
    Bytes frame{0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0};
    frame.insert(frame.end(), {static_cast<std::uint8_t>(size >> 8U), static_cast<std::uint8_t>(size), 58, 255});
    frame.insert(frame.end(), input.begin(), input.end());
    std::array<ip_addr, 2> ends{};
    std::memcpy(ends.data(), input.data(), kBoth);
    const std::span<std::uint8_t> message = std::span(frame).subspan(kMessage);
    message[kChecksum] = message[kChecksum + 1] = 0;
    const std::uint16_t sum = net::icmp6_checksum(ends[0], ends[1], message);
    message[kChecksum] = static_cast<std::uint8_t>(sum >> 8U);
    message[kChecksum + 1] = static_cast<std::uint8_t>(sum);
    require(net::icmp6_checksum(ends[0], ends[1], message) == 0);
    check(frame);
    // Without options, an advertisement to one node is right whatever else it says, but of such a target.
    const auto claim = net::claim_in(frame);
    const bool is_plain = size == 24 && message[0] == 136 && message[1] == 0 && input[16] != 0xff;
    ip_addr target{};
    if (is_plain) {
        std::memcpy(&target, message.data() + 8, sizeof target);
        require(claim.has_value() == (message[8] != 0xff && !is_ipv4(target)));
    }
    if (size < 24 || size % 8 != 0)
        require(!claim);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const Bytes input(data, data + size);
    check(input);
    check_message(input);
    return 0;
}
