// SPDX-License-Identifier: MIT
// A pod's addresses on the link of its network's uplink: no other machine has them, and they are announced to all.
#pragma once

#include "maps/tables.hpp"
#include "loader/net/announce.hpp"
#include "loader/net/netlink.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/entries.hpp"

#include <chrono>
#include <optional>
#include <span>

namespace podlane {

// Probes the link, while the rest of the ADD is done. Nothing is probed without an egress route.
class ConflictProbe {
  public:
    static Result<ConflictProbe> start(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses);
    // ErrorCode::already_exists names who has an address. Waits for what is left of the time to answer.
    [[nodiscard]] Result<void> must_be_free() const;

  private:
    std::string uplink_;
    std::optional<net::Probe> probe_;
    std::chrono::steady_clock::time_point deadline_;
};

// The uplink receives requests for the addresses (the program answers them), and its neighbours get announcements.
Result<void> announce_addresses(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses,
                                net::Netlink &host);
// Records whether the uplink has an IPv4 address for the node to send ARP requests from.
Result<void> record_numbering(const std::optional<EgressRoute> &egress, const std::string &root, net::Netlink &host);
// Source routes hold what the uplink was at the ADD: its MAC, by which the programs answer for pods, which another
// active port of a bond changes, and its number, which changes if it is made again. They get what it is now, and its
// neighbours new announcements. `network`: its routes by an interface that is gone are the uplink's by now, if it
// has no other. Under the exclusive lock: a DEL would renumber slots, and withdraw addresses, meanwhile.
Result<void> follow_uplink(const net::Link &uplink, std::uint32_t network, const Tables &tables,
                           const std::string &root, net::Netlink &host);
// The same for an ADD, if a route says that it is necessary. It does not concern the ADD's own pod, which therefore
// does not fail with it.
bool may_be_behind(const std::optional<EgressRoute> &egress, std::uint32_t network, const Tables &tables,
                   net::Netlink &host);
void follow_uplink_if_changed(const std::optional<EgressRoute> &egress, std::uint32_t network, const Tables &tables,
                              const std::string &root, net::Netlink &host);
// While an ADD waits, the uplink may change: what it is now, also in the ADD's own entries.
Result<void> look_again(std::optional<EgressRoute> &egress, SourceEntries &entries, net::Netlink &host);
// A missing uplink or entry is done already.
Result<void> withdraw_address(std::uint32_t uplink, const ip_addr &addr, net::Netlink &host);
// Of an uplink that carries no IPv6, before an ADD: ErrorCode::invalid_network_config.
Result<void> must_carry(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses);
// ErrorCode::check_failed if the uplink carries no IPv6, or does not listen to requests.
Result<void> check_link(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses,
                        net::Netlink &host);

} // namespace podlane
