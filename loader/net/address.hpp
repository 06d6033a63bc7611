// SPDX-License-Identifier: MIT
// Addresses of a link: add, remove and list.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane::net {

// The kernel's IFA_F_*.
constexpr std::uint32_t kNoDad = 0x02;
constexpr std::uint32_t kOptimistic = 0x04;
constexpr std::uint32_t kDadFailed = 0x08;
constexpr std::uint32_t kTentative = 0x40;
constexpr std::uint32_t kPermanent = 0x80;
constexpr std::uint32_t kNoPrefixRoute = 0x200;

// The kernel's RT_SCOPE_*, for addresses and for routes.
constexpr std::uint8_t kScopeGlobal = 0;
constexpr std::uint8_t kScopeLink = 253;

struct Address {
    Prefix prefix;
    std::uint32_t flags = 0;
    std::uint8_t scope = kScopeGlobal;
};

// false: was there already.
Result<bool> add_address(Netlink &netlink, std::uint32_t ifindex, const Address &address);
// false: was not there.
Result<bool> remove_address(Netlink &netlink, std::uint32_t ifindex, const Address &address);
// Why the container cannot use one that is there; nothing if it can. By duplicate address detection, which takes a
// second or two, unless `may_be_tentative`.
std::string unusable_because(const Address &present, bool may_be_tentative);
// Both families; none if there is no such link.
Result<std::vector<Address>> list_addresses(Netlink &netlink, std::uint32_t ifindex);

} // namespace podlane::net
