// SPDX-License-Identifier: MIT
#include "plugin/egress_rules.hpp"

#include "loader/net/conntrack.hpp"
#include "loader/net/nftables.hpp"
#include "loader/tracking.hpp"
#include "maps/entries.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/history.hpp"
#include "plugin/node_program.hpp"
#include "plugin/plan.hpp"

#include <algorithm>
#include <span>

namespace podlane {
namespace {

constexpr std::size_t kEgressRules = 5; // each with the mark as its comment

std::string rules(const std::string &network, const std::vector<Prefix> &cluster_cidrs, const std::string &mark) {
    const std::string table = "inet " + nft_table(network);
    const std::string comment = " comment \"" + mark + "\"\n";
    const std::string rule = "add rule " + table + " egress ";
    std::string script = "add table " + table + "\n";
    for (const std::string set : {"limited", "closed"})
        script += "add set " + table + " " + set + " { type ifname; }\n";
    script += nft_prefix_set(network, "inside4", cluster_cidrs, true);
    script += nft_prefix_set(network, "inside6", cluster_cidrs, false);
    script += "add chain " + table + " egress { type filter hook forward priority 0; policy accept; }\n";
    script += "flush chain " + table + " egress\n";
    script += rule + "iifname != @limited accept" + comment;
    script += rule + "ip daddr @inside4 accept" + comment;
    script += rule + "ip6 daddr @inside6 accept" + comment;
    // A packet from outside that isolation drops behind this hook leaves a connection, too: nobody waits for replies.
    script += rule + "iifname != @closed ct direction reply accept" + comment;
    script += rule + "counter drop" + comment;
    return script;
}

std::string mark_of(const std::string &network, const std::vector<Prefix> &cluster_cidrs) {
    return nft_mark(rules(network, cluster_cidrs, {}));
}

std::string host_ifname_in(const endpoint &record) { return std::string(field_text(record.host_ifname)); }

// Written by nft(8), in one transaction, unless they are there already.
Result<void> put_rules(net::Netlink &netfilter, const std::string &network, const std::vector<Prefix> &cluster_cidrs) {
    const std::string mark = mark_of(network, cluster_cidrs);
    const auto there = TRY(net::rule_comments(netfilter, nft_table(network), kEgressChain));
    if (there == std::vector<std::string>(kEgressRules, mark) &&
        TRY(has_prefixes(netfilter, network, "inside", cluster_cidrs)) &&
        TRY(has_base_chain(netfilter, network, kEgressChain, net::forward_filter())))
        return {};
    return run_script(Until(), "nft", {"-f", "-"},
                      nft_chain_repair(netfilter, network, kEgressChain, net::forward_filter()) +
                          rules(network, cluster_cidrs, mark));
}

} // namespace

Result<void> put_egress_rules(const cni::Config &config, const endpoint &record) {
    const auto sets = egress_sets_of(config);
    if (sets.empty())
        return {};
    const Step step(STEP_MASQUERADE);
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    TRY(put_rules(netfilter, config.name, config.cluster_cidrs));
    if (!TRY(net::add_interface(netfilter, nft_table(config.name), sets, host_ifname_in(record))))
        return Error{ErrorCode::try_again_later, "the rules of \"egress\" were removed while they were written",
                     "look for another program that flushes the node's rules"};
    return {};
}

Result<void> forget_connections_beyond(const Tables &tables, const cni::Config &config, const endpoint &record) {
    if (!config.egress_in_cluster)
        return {};
    TRY(put_addresses(tables, record));
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    TRY(net::forget_connections_from(netfilter, addresses_in(record), config.cluster_cidrs));
    return {};
}

Result<bool> has_egress_rules(const cni::Config &config, const endpoint &record) {
    const auto sets = egress_sets_of(config);
    if (sets.empty())
        return true;
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    const auto there = TRY(net::rule_comments(netfilter, nft_table(config.name), kEgressChain));
    const auto is_ours = [](const std::string &comment) { return comment.starts_with("podlane "); };
    const bool is_as_configured =
        there == std::vector<std::string>(kEgressRules, mark_of(config.name, config.cluster_cidrs));
    if (is_as_configured && !TRY(has_prefixes(netfilter, config.name, "inside", config.cluster_cidrs)))
        return false;
    return there.size() == kEgressRules && std::ranges::all_of(there, is_ours) &&
           TRY(has_base_chain(netfilter, config.name, kEgressChain, net::forward_filter())) &&
           TRY(net::has_interface(netfilter, nft_table(config.name), sets, host_ifname_in(record)));
}

Result<std::optional<std::uint64_t>> egress_drops(const std::string &network) {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    return net::counted_packets(netfilter, nft_table(network), kEgressChain);
}

Result<void> rewrite_egress_rules(const std::string &network, const std::vector<Prefix> &cluster_cidrs) {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    if (TRY(net::rule_comments(netfilter, nft_table(network), kEgressChain)).empty())
        return {};
    return put_rules(netfilter, network, cluster_cidrs);
}

Result<void> leave_egress_rules(const endpoint &record) {
    const Step step(STEP_MASQUERADE);
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    TRY(net::remove_interface(netfilter, nft_table(std::string(field_text(record.network_name))),
                              std::span(kEgressSets).first(2), host_ifname_in(record)));
    return {};
}

} // namespace podlane
