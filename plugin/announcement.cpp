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

Result<ConflictProbe> ConflictProbe::ask(const std::optional<EgressRoute> &way, std::span<const ip_addr> addresses) {
    ConflictProbe question;
    if (!way)
        return question;
    question.uplink_ = way->uplink.name;
    question.deadline_ = std::chrono::steady_clock::now() + kPatience;
    question.probe_.emplace(TRY(net::Probe::send(way->uplink.ifindex, way->uplink.mac, addresses)));
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
Result<void> announce_addresses(const std::optional<EgressRoute> &way, std::span<const ip_addr> addresses,
                                net::Netlink &host) {
    if (!way)
        return {};
    for (const ip_addr &addr : addresses) {
        if (!is_ipv4(addr))
            TRY(net::put_proxy(host, way->uplink.ifindex, addr));
    }
    return net::announce(way->uplink.ifindex, way->uplink.mac, addresses);
}

Result<void> record_numbering(const std::optional<EgressRoute> &way, const std::string &root, net::Netlink &host) {
    if (!way)
        return {};
    const auto addresses = TRY(net::list_addresses(host, way->uplink.ifindex));
    const bool unnumbered =
        std::ranges::none_of(addresses, [](const net::Address &one) { return is_ipv4(one.prefix.addr); });
    const Uplinks uplinks = TRY(open_uplinks(root, Access::read_write));
    auto entry = TRY(uplinks.find(way->uplink.ifindex));
    if (!entry || ((entry->flags & UPLINK_UNNUMBERED) != 0) == unnumbered)
        return {};
    entry->flags ^= UPLINK_UNNUMBERED;
    return uplinks.replace(way->uplink.ifindex, *entry);
}

Result<void> withdraw_address(std::uint32_t uplink, const ip_addr &addr, net::Netlink &host) {
    if (!is_ipv4(addr))
        TRY(net::remove_proxy(host, uplink, addr));
    return {};
}

Result<void> check_link(const std::optional<EgressRoute> &way, std::span<const ip_addr> addresses, net::Netlink &host) {
    if (!way)
        return {};
    for (const ip_addr &addr : addresses)
        if (!is_ipv4(addr) && !TRY(net::has_proxy(host, way->uplink.ifindex, addr)))
            return Error{ErrorCode::check_failed,
                         "uplink " + way->uplink.name + " does not listen to questions for " + to_string(addr),
                         "`ip -6 neigh add proxy " + to_string(addr) + " dev " + way->uplink.name + "` restores it"};
    return {};
}

} // namespace podlane
