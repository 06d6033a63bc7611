// SPDX-License-Identifier: MIT
#include "plugin/announcement.hpp"

#include "loader/net/address.hpp"
#include "loader/net/neighbour.hpp"

#include <algorithm>

namespace podlane {
namespace {

// Neighbours on a link answer within a millisecond; RFC 5227 waits for seconds, which no pod's start can.
constexpr std::chrono::milliseconds kPatience{20};

} // namespace

Result<ConflictProbe> ConflictProbe::start(const std::optional<EgressRoute> &egress,
                                           std::span<const ip_addr> addresses) {
    ConflictProbe question;
    if (!egress)
        return question;
    question.uplink_ = egress->uplink.name;
    question.deadline_ = std::chrono::steady_clock::now() + kPatience;
    question.probe_.emplace(TRY(net::Probe::send(egress->uplink.ifindex, egress->uplink.mac, addresses)));
    return question;
}

Result<void> ConflictProbe::must_be_free() const {
    const auto claim = probe_ ? TRY(probe_->answer(deadline_)) : std::nullopt;
    if (!claim)
        return {};
    return Error{ErrorCode::already_exists,
                 "address " + to_string(claim->addr) + " is in use on " + uplink_ + " by " + to_string(claim->mac),
                 "leave it out of the IPAM plugin's range, or find out who that is"};
}

// The kernel joins the multicast group of what it is a proxy for; the answers are the program's.
Result<void> announce_addresses(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses,
                                net::Netlink &host) {
    if (!egress)
        return {};
    for (const ip_addr &addr : addresses) {
        if (!is_ipv4(addr))
            TRY(net::put_proxy(host, egress->uplink.ifindex, addr));
    }
    return net::announce(egress->uplink.ifindex, egress->uplink.mac, addresses);
}

Result<void> record_numbering(const std::optional<EgressRoute> &egress, const std::string &root, net::Netlink &host) {
    if (!egress)
        return {};
    const auto addresses = TRY(net::list_addresses(host, egress->uplink.ifindex));
    const bool unnumbered =
        std::ranges::none_of(addresses, [](const net::Address &one) { return is_ipv4(one.prefix.addr); });
    const Uplinks uplinks = TRY(open_uplinks(root, Access::read_write));
    auto entry = TRY(uplinks.find(egress->uplink.ifindex));
    if (!entry || ((entry->flags & UPLINK_UNNUMBERED) != 0) == unnumbered)
        return {};
    entry->flags ^= UPLINK_UNNUMBERED;
    return uplinks.replace(egress->uplink.ifindex, *entry);
}

Result<void> withdraw_address(std::uint32_t uplink, const ip_addr &addr, net::Netlink &host) {
    if (!is_ipv4(addr))
        TRY(net::remove_proxy(host, uplink, addr));
    return {};
}

Result<void> check_link(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses,
                        net::Netlink &host) {
    if (!egress)
        return {};
    for (const ip_addr &addr : addresses)
        if (!is_ipv4(addr) && !TRY(net::has_proxy(host, egress->uplink.ifindex, addr)))
            return Error{ErrorCode::check_failed,
                         "uplink " + egress->uplink.name + " does not listen to questions for " + to_string(addr),
                         "`ip -6 neigh add proxy " + to_string(addr) + " dev " + egress->uplink.name + "` restores it"};
    return {};
}

} // namespace podlane
