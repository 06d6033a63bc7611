// SPDX-License-Identifier: MIT
// Duplicate address detection and announcements for addresses that are not this node's own.
#pragma once

#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "maps/result.hpp"
#include "loader/net/claim.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace podlane::net {

// Probes under way, of ARP (RFC 5227, 1.1) and duplicate address detection (RFC 4862, 5.4.2).
class Probe {
  public:
    static Result<Probe> send(std::uint32_t ifindex, const Mac &own, std::span<const ip_addr> addresses);
    // The first answer of another station that arrives by `deadline`.
    [[nodiscard]] Result<std::optional<Claim>> answer(std::chrono::steady_clock::time_point deadline) const;

  private:
    Probe(Fd arp, Fd nd, const Mac &own, std::span<const ip_addr> addresses)
        : arp_(std::move(arp)), nd_(std::move(nd)), own_(own), addresses_(addresses.begin(), addresses.end()) {}
    [[nodiscard]] Result<std::optional<Claim>> read(const Fd &socket) const;

    Fd arp_;
    Fd nd_;
    Mac own_;
    std::vector<ip_addr> addresses_;
};

// Gratuitous ARP and unsolicited neighbour advertisements (RFC 5227, 2.3; RFC 4861, 7.2.6).
Result<void> announce(std::uint32_t ifindex, const Mac &own, std::span<const ip_addr> addresses);

} // namespace podlane::net
