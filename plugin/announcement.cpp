// SPDX-License-Identifier: MIT
#include "plugin/announcement.hpp"

#include "loader/net/address.hpp"
#include "loader/net/neighbour.hpp"
#include "maps/errors.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"

#include <algorithm>
#include <map>

namespace podlane {
namespace {

// Neighbours on a link answer within a millisecond; RFC 5227 waits for seconds, which no pod's start can.
constexpr std::chrono::milliseconds kPatience{20};

// The uplink as the routes of its networks have to have it.
class Followed {
  public:
    Followed(const net::Link &link, std::uint32_t network, const Tables &tables)
        : link_(link), network_(network), tables_(tables) {}

    Result<bool> is_behind(const source_route &route) {
        if (route.uplink == link_.ifindex)
            return !std::ranges::equal(route.uplink_mac, link_.mac);
        if (route.uplink == 0 || !TRY(is_gone(route.uplink)))
            return false;
        const auto owner = TRY(tables_.interfaces.find(route.ifindex));
        return owner && owner->network == network_ && TRY(is_only_one());
    }

  private:
    Result<bool> is_gone(std::uint32_t ifindex) {
        const auto known = is_gone_.find(ifindex);
        if (known != is_gone_.end())
            return known->second;
        return is_gone_[ifindex] = TRY(net::link_name(ifindex)).empty();
    }
    // Of several uplinks, nothing says here by which of them a route left.
    [[nodiscard]] Result<bool> is_only_one() const {
        const auto entry = TRY(tables_.networks.find(network_));
        return entry && field_text(entry->uplinks) == link_.name;
    }

    const net::Link &link_;
    std::uint32_t network_;
    const Tables &tables_;
    std::map<std::uint32_t, bool> is_gone_;
};

// The uplink as it is now, since an ADD may have waited, if a route is behind it.
Result<std::optional<net::Link>> changed_uplink(const std::optional<EgressRoute> &egress, std::uint32_t network,
                                                const Tables &tables, net::Netlink &host) {
    auto link = egress ? TRY(net::find_link(host, egress->uplink.ifindex)) : std::nullopt;
    if (!link)
        return link;
    Followed followed(*link, network, tables);
    for (const auto &[key, route] : TRY(tables.source_routes.entries()))
        if (TRY(followed.is_behind(route)))
            return link;
    return std::optional<net::Link>{};
}

template <typename Key>
Result<std::vector<std::pair<Key, source_route>>> rewrite(const Map<Key, source_route> &table, const net::Link &uplink,
                                                          Followed &followed) {
    auto all = TRY(table.entries());
    for (auto &[key, route] : all) {
        if (!TRY(followed.is_behind(route)))
            continue;
        route.uplink = uplink.ifindex;
        std::ranges::copy(uplink.mac, route.uplink_mac);
        TRY(replace_if_there(table, key, route));
    }
    return all;
}

Result<void> must_carry(const net::Link &uplink, const ip_addr &addr, ErrorCode code) {
    const std::string reached = ", by which " + to_string(addr) + " is reached";
    if (!is_ipv4(addr) && uplink.mtu < kSmallestIpv6Mtu)
        return Error{code, mtu_is_too_small("uplink " + uplink.name + reached + ",", uplink.mtu),
                     "`ip link set " + uplink.name + " mtu " + std::to_string(kSmallestIpv6Mtu) + "`, or more"};
    if (!is_ipv4(addr) && uplink.ipv6_off)
        return Error{code, "IPv6 is switched off on uplink " + uplink.name + reached,
                     "`sysctl -w net.ipv6.conf." + uplink.name + ".disable_ipv6=0`"};
    return {};
}

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

Result<void> follow_uplink(const net::Link &uplink, std::uint32_t network, const Tables &tables,
                           const std::string &root, net::Netlink &host) {
    Followed followed(uplink, network, tables);
    TRY(rewrite(tables.source_slots, uplink, followed));
    std::vector<ip_addr> addresses;
    for (const auto &[key, route] : TRY(rewrite(tables.source_routes, uplink, followed)))
        if (route.uplink == uplink.ifindex && route.ifindex == key.ifindex)
            addresses.push_back(route.source);
    if (addresses.empty())
        return {};
    const std::optional<EgressRoute> egress(EgressRoute{uplink, {}, {}});
    Errors errors;
    errors.add(record_numbering(egress, root, host));
    errors.add(announce_addresses(egress, addresses, host));
    return std::move(errors).result();
}

Result<void> look_again(std::optional<EgressRoute> &egress, SourceEntries &entries, net::Netlink &host) {
    const auto link = egress ? TRY(net::find_link(host, egress->uplink.ifindex)) : std::nullopt;
    if (!link)
        return {};
    egress->uplink = *link;
    const auto follow = [&](source_route &route) {
        if (route.uplink == link->ifindex)
            std::ranges::copy(link->mac, route.uplink_mac);
    };
    for (auto &[key, route] : entries.routes)
        follow(route);
    for (auto &[key, route] : entries.slots)
        follow(route);
    return {};
}

bool may_be_behind(const std::optional<EgressRoute> &egress, std::uint32_t network, const Tables &tables,
                   net::Netlink &host) {
    const auto changed = changed_uplink(egress, network, tables, host);
    return !changed || *changed;
}

void follow_uplink_if_changed(const std::optional<EgressRoute> &egress, std::uint32_t network, const Tables &tables,
                              const std::string &root, net::Netlink &host) {
    const auto changed = changed_uplink(egress, network, tables, host);
    if (changed && !*changed)
        return;
    const auto followed =
        changed ? follow_uplink(**changed, network, tables, root, host) : Result<void>(changed.error());
    if (followed)
        log(cni::Log::Level::info, "uplink " + (*changed)->name + " has MAC " + to_string((*changed)->mac) +
                                       " and number " + std::to_string((*changed)->ifindex) + " now: its pods follow");
    else
        log(cni::Log::Level::warning,
            "uplink " + egress->uplink.name +
                " was changed, and not all pods on its link follow: " + followed.error().message);
}

Result<void> withdraw_address(std::uint32_t uplink, const ip_addr &addr, net::Netlink &host) {
    if (!is_ipv4(addr))
        TRY(net::remove_proxy(host, uplink, addr));
    return {};
}

Result<void> must_carry(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses) {
    if (egress)
        for (const ip_addr &addr : addresses)
            TRY(must_carry(egress->uplink, addr, ErrorCode::invalid_network_config));
    return {};
}

Result<void> check_link(const std::optional<EgressRoute> &egress, std::span<const ip_addr> addresses,
                        net::Netlink &host) {
    for (const ip_addr &addr : addresses) {
        if (!egress || is_ipv4(addr))
            continue;
        TRY(must_carry(egress->uplink, addr, ErrorCode::check_failed));
        if (!TRY(net::has_proxy(host, egress->uplink.ifindex, addr)))
            return Error{ErrorCode::check_failed,
                         "uplink " + egress->uplink.name + " does not listen to questions for " + to_string(addr),
                         "`podlanectl repair` restores it"};
    }
    return {};
}

} // namespace podlane
