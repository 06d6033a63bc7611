// SPDX-License-Identifier: MIT
#include "loader/own_addresses.hpp"

#include "loader/net/route.hpp"
#include "loader/net/rule.hpp"
#include "maps/abi/own_address.h"

#include <optional>
#include <utility>

namespace podlane {
namespace {

constexpr std::uint32_t kTable = 0x504c0000;    // "PL"
constexpr std::uint8_t kOfTheKernel = 2;        // RTPROT_KERNEL: systemd-networkd removes all others
constexpr std::uint32_t kPriority = 0x504c0000; // behind the main table's 32766 and what others add

net::RuleSpec rule_of(bool ipv4) {
    return {.source = {any_addr(ipv4), 0},
            .table = kTable,
            .priority = kPriority,
            .only = net::QueryKind{"lo", OWN_ADDRESS_PROTOCOL, OWN_ADDRESS_PORT},
            .protocol = kOfTheKernel};
}

net::RouteSpec route_of(bool ipv4) {
    net::RouteSpec route{.destination = {any_addr(ipv4), 0}, .table = kTable};
    route.type = net::kUnreachable;
    route.protocol = kOfTheKernel;
    return route;
}

// Nothing without the family's rules.
Result<std::optional<bool>> find_rule(net::Netlink &host, bool ipv4) {
    auto found = net::has_rule(host, rule_of(ipv4));
    if (found)
        return std::optional(*found);
    return net::lacks_family(found.error()) ? Result<std::optional<bool>>(std::nullopt) : std::move(found).error();
}

} // namespace

Result<void> put_own_address_rules() {
    net::Netlink host = TRY(net::Netlink::open());
    for (const bool ipv4 : {true, false}) {
        const auto there = TRY(find_rule(host, ipv4));
        if (!there)
            continue;
        TRY(net::add_rule(host, rule_of(ipv4)));
        TRY(net::add_route(host, route_of(ipv4)));
    }
    return {};
}

Result<OwnAddressRules> find_own_address_rules() {
    net::Netlink host = TRY(net::Netlink::open());
    bool any = false, all = true;
    for (const bool ipv4 : {true, false})
        if (const auto there = TRY(find_rule(host, ipv4))) {
            any = any || *there;
            all = all && *there && TRY(net::find_route(host, route_of(ipv4)));
        }
    return all ? OwnAddressRules::all : any ? OwnAddressRules::some : OwnAddressRules::none;
}

// The rule last: it says that there is something to remove.
Result<void> remove_own_address_rules() {
    net::Netlink host = TRY(net::Netlink::open());
    for (const bool ipv4 : {true, false})
        if (TRY(find_rule(host, ipv4)).value_or(false)) {
            TRY(net::remove_route(host, route_of(ipv4)));
            TRY(net::remove_rule(host, rule_of(ipv4)));
        }
    return {};
}

} // namespace podlane
