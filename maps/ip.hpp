// SPDX-License-Identifier: MIT
// Words for addresses: parse, print and compare struct ip_addr, prefixes and MAC addresses.
#pragma once

#include "abi/types.h"
#include "result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// In the namespace of the struct, so that algorithms find it.
bool operator==(const ip_addr &a, const ip_addr &b);

namespace podlane {

using Mac = std::array<std::uint8_t, 6>;
constexpr Mac to_mac(const std::uint8_t (&bytes)[6]) { return std::to_array(bytes); }

// Strict: dotted quad or RFC 4291 text, no zone, no surrounding space. An IPv4 address in IPv6 text (::ffff:192.0.2.1)
// is refused, with a hint: families are never mixed.
Result<ip_addr> parse_ip(std::string_view text);
std::string to_string(const ip_addr &addr);
[[nodiscard]] bool is_ipv4(const ip_addr &addr);
[[nodiscard]] std::uint8_t address_bits(const ip_addr &addr); // 32 or 128
[[nodiscard]] bool is_none(const ip_addr &addr);
[[nodiscard]] bool is_link_local(const ip_addr &addr); // fe80::/10 or 169.254.0.0/16
ip_addr ipv4_from_host_order(std::uint32_t addr);
ip_addr any_addr(bool ipv4); // 0.0.0.0 or ::
// Of 4 or 16 bytes in network order; nothing of another number.
std::optional<ip_addr> addr_from_bytes(const void *data, std::size_t size);
// fe80::/64 with the EUI-64 identifier of `mac` (RFC 4291, appendix A).
ip_addr link_local_from_mac(const Mac &mac);

// An address and the length of its prefix in bits of its own family (0–32 or 0–128); host bits may be set.
struct Prefix {
    ip_addr addr{};
    std::uint8_t length = 0;
    bool operator==(const Prefix &other) const { return addr == other.addr && length == other.length; }
};
// "10.1.2.3/24"; without a slash it is the host prefix.
Result<Prefix> parse_prefix(std::string_view text);
std::string to_string(const Prefix &prefix);
[[nodiscard]] Prefix host_prefix(const ip_addr &addr); // /32 or /128
[[nodiscard]] bool is_host_prefix(const Prefix &prefix);
// The length in the 128-bit form, in which IPv4 is ::ffff:0:0/96.
[[nodiscard]] std::uint8_t mapped_length(const Prefix &prefix);
[[nodiscard]] Prefix masked(const Prefix &prefix); // host bits cleared
[[nodiscard]] bool contains(const Prefix &prefix, const ip_addr &addr);
[[nodiscard]] bool contains(const Prefix &wide, const Prefix &narrow); // or the same

// "02:00:00:00:00:01", either case.
Result<Mac> parse_mac(std::string_view text);
std::string to_string(const Mac &mac);

} // namespace podlane
