// SPDX-License-Identifier: MIT
#include "loader/tracking.hpp"

#include "loader/net/nftables.hpp"

namespace podlane {
namespace {

constexpr const char *kChain = "conntrack";

std::string table_of(const std::string &network) { return "podlane-" + network; }

using Removal = Result<bool> (*)(net::Netlink &netfilter, const std::string &table);

Result<void> remove(Removal removal, const std::string &network) {
    auto netfilter = net::Netlink::open_netfilter();
    auto removed = netfilter ? removal(*netfilter, table_of(network)) : std::move(netfilter).error();
    if (!removed && !net::lacks_nf_tables(removed.error()))
        return std::move(removed).error();
    return {};
}

} // namespace

Result<void> start_tracking(const std::string &network) {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    if (TRY(net::has_rules(netfilter, table_of(network), kChain)))
        return {};
    return net::add_tracking(netfilter, table_of(network), kChain);
}

Result<void> stop_tracking(const std::string &network) { return remove(&net::remove_table, network); }

Result<void> stop_tracking_beside_masquerade(const std::string &network) {
    const auto removal = [](net::Netlink &netfilter, const std::string &table) -> Result<bool> {
        TRY(net::remove_chain(netfilter, table, kEgressChain, kEgressSets));
        return net::remove_chain(netfilter, table, kChain);
    };
    return remove(removal, network);
}

Result<bool> is_tracking(const std::string &network) {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    return net::has_rules(netfilter, table_of(network), kChain);
}

Result<void> load_conntrack() {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    return net::load_tracking(netfilter);
}

} // namespace podlane
