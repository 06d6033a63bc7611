// SPDX-License-Identifier: MIT
#include "plugin/masquerade.hpp"

#include "loader/expedited_rcu.hpp"
#include "loader/net/legacy_tables.hpp"
#include "loader/tracking.hpp"
#include "maps/errors.hpp"
#include "maps/tables.hpp"
#include "maps/text.hpp"
#include "plugin/history.hpp"
#include "plugin/listed_rules.hpp"
#include "plugin/node_program.hpp"
#include "loader/net/nftables.hpp"
#include "loader/net/prefix_set.hpp"

#include <algorithm>

namespace podlane {
namespace {

// Whether the kernel holds NAT rules of the iptables that is not built on nftables.
Result<bool> has_older_nat() {
    return TRY(net::has_legacy_table(true, "nat")) || TRY(net::has_legacy_table(false, "nat"));
}

std::string table_of(const std::string &network) { return "inet " + nft_table(network); }

net::AddressSets sets_of(const std::string &network) { return {nft_table(network), "pods4", "pods6"}; }

bool is_of(const Prefix &prefix, bool ipv4) { return is_ipv4(prefix.addr) == ipv4; }

// Destinations that see the pods' own addresses.
std::vector<Prefix> exempt_in(const cni::Config &config) {
    std::vector<Prefix> all = config.cluster_cidrs;
    all.insert(all.end(), config.no_masquerade.begin(), config.no_masquerade.end());
    return all;
}

std::string family_rules(const std::string &table, const cni::Config &config, const std::string &mark, bool ipv4) {
    const std::string digit = ipv4 ? "4" : "6";
    const std::string ip = ipv4 ? "ip" : "ip6";
    const std::string type = ipv4 ? "ipv4_addr" : "ipv6_addr";
    std::string script = "add set " + table + " pods" + digit + " { type " + type + "; }\n";
    script += nft_prefix_set(config.name, "cluster" + digit, exempt_in(config), ipv4);
    script += "add rule " + table + " postrouting " + ip + " saddr @pods" + digit + " " + ip + " daddr != @pods" +
              digit + " " + ip + " daddr != @cluster" + digit + " " + ip +
              " daddr != " + (ipv4 ? "224.0.0.0/4" : "ff00::/8") + " masquerade comment \"" + mark + "\"\n";
    return script;
}

constexpr std::size_t kRules = 2; // one a family, each with the mark as its comment

std::string rules(const cni::Config &config, const std::string &mark) {
    const std::string table = table_of(config.name);
    return "add table " + table + "\n" + "add chain " + table +
           " postrouting { type nat hook postrouting priority 100; }\n" + "flush chain " + table + " postrouting\n" +
           family_rules(table, config, mark, true) + family_rules(table, config, mark, false);
}

std::string mark_of(const cni::Config &config) { return nft_mark(rules(config, {})); }

// Whichever configuration wrote the rules: their mark is of what the sets held.
Result<bool> has_rules_of_sets(net::Netlink &netfilter, const std::string &network) {
    if (!TRY(has_base_chain(netfilter, network, "postrouting", net::postrouting_nat())))
        return false;
    const auto there = TRY(net::rule_comments(netfilter, nft_table(network), "postrouting"));
    if (there.size() == kRules && std::ranges::all_of(there, is_mark_of_before))
        return true;
    cni::Config written;
    written.name = network;
    for (const char *set : {"cluster4", "cluster6"}) {
        const auto prefixes = TRY(net::list_prefixes(netfilter, nft_table(network), set));
        if (!prefixes)
            return false;
        std::ranges::copy(*prefixes, std::back_inserter(written.cluster_cidrs));
    }
    return there == std::vector<std::string>(kRules, mark_of(written));
}

// Adds to the rules that are there, by netlink: the cost of nft(8) grows with the rule set. False if they are missing
// or of another configuration.
bool add_to_nftables(const cni::Config &config, const std::string &mark, std::span<const ip_addr> addresses) {
    auto netfilter = net::Netlink::open_netfilter();
    if (!netfilter)
        return false;
    const auto there = net::rule_comments(*netfilter, nft_table(config.name), "postrouting");
    if (!there || *there != std::vector<std::string>(kRules, mark))
        return false;
    if (const auto as_written = has_base_chain(*netfilter, config.name, "postrouting", net::postrouting_nat());
        !as_written || !*as_written)
        return false;
    if (const auto exempt = has_prefixes(*netfilter, config.name, "cluster", exempt_in(config)); !exempt || !*exempt)
        return false;
    const auto added = net::add_elements(*netfilter, sets_of(config.name), addresses);
    return added && *added;
}

std::string elements(std::string_view verb, const std::string &table, std::span<const ip_addr> addresses) {
    std::string script;
    for (const ip_addr &addr : addresses)
        script += std::string(verb) + " element " + table + (is_ipv4(addr) ? " pods4 { " : " pods6 { ") +
                  to_string(addr) + " }\n";
    return script;
}

// One transaction: at no moment is a rule missing. A rule that cannot be added by netlink, for whatever reason, is
// written as a whole by nft(8), whose error is the one that counts.
Result<void> put_nftables(const cni::Config &config, std::span<const ip_addr> addresses) {
    const Step step(STEP_MASQUERADE);
    const std::string mark = mark_of(config);
    if (add_to_nftables(config, mark, addresses))
        return {};
    auto netfilter = net::Netlink::open_netfilter();
    const std::string repair =
        netfilter ? nft_chain_repair(*netfilter, config.name, "postrouting", net::postrouting_nat()) : std::string();
    return run_script(Until(), "nft", {"-f", "-"},
                      repair + rules(config, mark) + elements("add", table_of(config.name), addresses));
}

// A table that is gone holds none of them. A transaction that removes something waits for a grace period: one for all,
// and none if nothing is there.
Result<void> erase_from_nftables(const std::string &network, std::span<const ip_addr> addresses) {
    constexpr std::size_t kAtOnce = 512; // a netlink attribute has 64 KiB at most
    const Step step(STEP_MASQUERADE);
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    std::vector<ip_addr> present;
    for (const ip_addr &addr : addresses)
        if (TRY(net::has_elements(netfilter, sets_of(network), {&addr, 1})))
            present.push_back(addr);
    if (present.empty())
        return {};
    const ExpeditedRcu while_removing;
    for (std::span<const ip_addr> rest = present; !rest.empty(); rest = rest.subspan(std::min(kAtOnce, rest.size())))
        TRY(net::remove_elements(netfilter, sets_of(network), rest.first(std::min(kAtOnce, rest.size()))));
    return {};
}

// Rules that were saved while another pod had the addresses may be back.
Result<void> leave_restored(const std::string &network, std::span<const ip_addr> addresses) {
    auto left = erase_from_nftables(network, addresses);
    return !left && net::lacks_nf_tables(left.error()) ? Result<void>{} : left;
}

Result<void> drop_nftables(const std::string &network) {
    const Step step(STEP_MASQUERADE);
    return stop_tracking(network); // in the same table
}

const char *iptables(bool ipv4) { return ipv4 ? "iptables" : "ip6tables"; }
const char *iptables_restore(bool ipv4) { return ipv4 ? "iptables-restore" : "ip6tables-restore"; }

// As `iptables -S` shows them.
std::string chain_rules(const cni::Config &config, const std::string &mark, bool ipv4) {
    const std::string add = "-A " + iptables_chain(config.name);
    std::string rules;
    for (const Prefix &prefix : disjoint(exempt_in(config), ipv4))
        rules += add + (prefix.length == 0 ? "" : " -d " + to_string(prefix)) + " -j RETURN\n";
    rules += add + " -d " + (ipv4 ? "224.0.0.0/4" : "ff00::/8") + " -j RETURN\n";
    return rules + add + " -m comment --comment \"" + mark + " " + config.name + "\" -j MASQUERADE\n";
}

// The output, if it succeeded.
Result<std::string> output_of(const char *program, Finished finished) {
    if (finished.exit_code != 0)
        return failed(program, finished);
    return std::move(finished.out);
}

// Of a rule that is looked for: that exit code is also the one of iptables that could not start.
bool is_missing_rule(const Finished &finished) {
    return finished.exit_code == 1 &&
           (finished.err.find("does a matching rule exist in that chain?") != std::string::npos ||
            finished.err.find("No chain/target/match by that name") != std::string::npos);
}

// The chain is replaced as a whole, and jumped to from the subnet of the lease.
Result<void> put_iptables(const Until &until, const cni::Config &config, const std::vector<Prefix> &leased, bool ipv4) {
    const std::string chain = iptables_chain(config.name);
    const std::string mark = nft_mark(chain_rules(config, kUnmarked, ipv4));
    TRY(run_script(until, iptables_restore(ipv4), {"--wait", "--noflush"},
                   "*nat\n:" + chain + " - [0:0]\n" + chain_rules(config, mark, ipv4) + "COMMIT\n"));
    for (const Prefix &subnet : disjoint(leased, ipv4)) {
        auto jump = split<std::string>("--wait -t nat -C " + jump_from(subnet, chain), " ");
        const Finished looked = TRY(run(until, iptables(ipv4), jump, ""));
        if (looked.exit_code == 0)
            continue;
        if (!is_missing_rule(looked))
            return failed(iptables(ipv4), looked);
        jump[3] = "-A";
        TRY(run_script(until, iptables(ipv4), jump, ""));
    }
    return {};
}

Result<bool> nf_tables_have(const std::string &chain, bool ipv4) {
    auto netfilter = net::Netlink::open_netfilter();
    auto there = netfilter ? net::has_iptables_chain(*netfilter, ipv4, chain) : std::move(netfilter).error();
    return !there && net::lacks_nf_tables(there.error()) ? Result<bool>(false) : there;
}

// Without running iptables(8): the older one registers the table that it is to list, and later ADDs would choose it.
Result<bool> may_have_chain(const std::string &chain, bool ipv4) {
    return TRY(net::has_legacy_table(ipv4, "nat")) || TRY(nf_tables_have(chain, ipv4));
}

// Of one chain or, if that is empty, of all.
Result<Finished> run_list(const Until &until, const std::string &program, const std::string &chain) {
    std::vector<std::string> arguments{"--wait", "-t", "nat", "-S"};
    if (!chain.empty())
        arguments.push_back(chain);
    return run(until, program, arguments, "");
}

Result<std::string> list_all(const Until &until, const std::string &program) {
    return output_of(program.c_str(), TRY(run_list(until, program, "")));
}

bool names_chain(const std::string &all, const std::string &chain) {
    return all.find("-N " + chain + "\n") != std::string::npos;
}

// iptables on nf_tables that could not read the chains lists none, with exit code 0.
Result<bool> is_listed(const std::string &all, const std::string &chain, bool ipv4) {
    if (names_chain(all, chain))
        return true;
    if (TRY(nf_tables_have(chain, ipv4)))
        return Error{ErrorCode::io_failure,
                     std::string("rules of \"ipMasq\": ") + iptables(ipv4) + " does not list chain " + chain +
                         ", which is in table nat of nf_tables",
                     "try again; if iptables is the older one by now, remove the chain with iptables-nft"};
    return false;
}

Result<void> remove_chain(const Until &until, const std::string &restore, const std::string &all,
                          const std::string &chain) {
    return run_script(until, restore, {"--wait", "--noflush"}, script_that_removes(all, chain));
}

Result<void> drop_iptables(const Until &until, const std::string &network, bool ipv4) {
    const std::string chain = iptables_chain(network);
    if (!TRY(may_have_chain(chain, ipv4)) || TRY(find_program(iptables(ipv4))).empty())
        return {};
    const std::string all = TRY(list_all(until, iptables(ipv4)));
    auto listed = is_listed(all, chain, ipv4);
    if (listed)
        return *listed ? remove_chain(until, iptables_restore(ipv4), all, chain) : Result<void>{};
    const std::string nft = iptables(ipv4) + std::string("-nft"); // the other may be the older one by now
    const std::string by_nft = TRY(find_program(nft)).empty() ? "" : TRY(list_all(until, nft));
    return names_chain(by_nft, chain) ? remove_chain(until, nft + "-restore", by_nft, chain)
                                      : std::move(listed).error();
}

// One rule a line, as they would be added; empty if the chain is missing. By exit code and words that may be a failure
// as well: all chains are listed then.
Result<std::string> list_chain(const Until &until, const std::string &chain, bool ipv4) {
    Finished listed = TRY(run_list(until, iptables(ipv4), chain));
    if (listed.exit_code == 0)
        return std::move(listed.out);
    if (TRY(is_listed(TRY(list_all(until, iptables(ipv4))), chain, ipv4)))
        return failed(iptables(ipv4), listed);
    return std::string();
}

// That the chain is as it was written, and is jumped to from each address.
Result<bool> has_chain_for(const Until &until, const std::string &network, std::span<const ip_addr> addresses,
                           bool ipv4) {
    const std::string chain = iptables_chain(network);
    if (!is_as_marked(TRY(list_chain(until, chain, ipv4)), network))
        return false;
    const std::string leading = TRY(output_of(iptables(ipv4), TRY(run_list(until, iptables(ipv4), "POSTROUTING"))));
    const auto from = subnets_that_jump(leading, chain);
    return std::ranges::all_of(addresses, [&](const ip_addr &addr) {
        return podlane::is_ipv4(addr) != ipv4 ||
               std::ranges::any_of(from, [&](const Prefix &one) { return contains(one, addr); });
    });
}

bool has_family(const std::vector<Prefix> &leased, bool ipv4) {
    return std::ranges::any_of(leased, [&](const Prefix &one) { return is_of(one, ipv4); });
}

} // namespace

Result<endpoint_masquerade> choose_masquerade() {
    const bool has_nft = !TRY(find_program("nft")).empty();
    const bool has_iptables = !TRY(find_program("iptables-restore")).empty();
    if (has_nft && !(has_iptables && TRY(has_older_nat())))
        return ENDPOINT_MASQUERADE_NFTABLES;
    if (has_iptables)
        return ENDPOINT_MASQUERADE_IPTABLES;
    return Error{ErrorCode::plugin_not_available,
                 "ipMasq needs nft or iptables, and PATH has neither as an executable file",
                 "install nftables, or set \"ipMasq\" to false"};
}

Result<void> masquerade(endpoint_masquerade by, const cni::Config &config, const std::vector<Prefix> &leased) {
    std::vector<ip_addr> addresses;
    addresses.reserve(leased.size());
    for (const Prefix &one : leased)
        addresses.push_back(one.addr);
    if (by == ENDPOINT_MASQUERADE_NONE)
        return leave_restored(config.name, addresses);
    if (by == ENDPOINT_MASQUERADE_NFTABLES)
        return put_nftables(config, addresses);
    const Until until;
    for (const bool ipv4 : {true, false})
        if (has_family(leased, ipv4))
            TRY(put_iptables(until, config, leased, ipv4));
    return {};
}

Result<bool> is_masqueraded(endpoint_masquerade by, const std::string &network, std::span<const ip_addr> addresses) {
    if (by == ENDPOINT_MASQUERADE_NFTABLES) {
        net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
        // An ADD may replace rules and sets between the two reads.
        const bool are_whole = TRY(has_rules_of_sets(netfilter, network)) || TRY(has_rules_of_sets(netfilter, network));
        return are_whole && TRY(net::has_elements(netfilter, sets_of(network), addresses));
    }
    const Until until;
    for (const bool ipv4 : {true, false}) {
        const bool concerned =
            std::ranges::any_of(addresses, [&](const ip_addr &addr) { return podlane::is_ipv4(addr) == ipv4; });
        // Twice as well: iptables on nf_tables that could not read the rules lists none, with exit code 0.
        if (concerned && !TRY(has_chain_for(until, network, addresses, ipv4)) &&
            !TRY(has_chain_for(until, network, addresses, ipv4)))
            return false;
    }
    return true;
}

std::string masquerade_is_gone(const endpoint &entry) {
    return "the table, chain, rules or set elements that masquerade " + std::string(field_text(entry.host_ifname)) +
           " are gone or changed";
}

Result<void> rewrite_masquerade(std::uint8_t by, const std::string &network, const std::vector<Prefix> &cluster_cidrs,
                                const std::vector<Prefix> &no_masquerade) {
    cni::Config config;
    config.name = network;
    config.cluster_cidrs = cluster_cidrs;
    config.no_masquerade = no_masquerade;
    if ((by & ENDPOINT_MASQUERADE_NFTABLES) != 0)
        TRY(put_nftables(config, {}));
    const Until until;
    for (const bool ipv4 : {true, false})
        if ((by & ENDPOINT_MASQUERADE_IPTABLES) != 0 && !TRY(list_chain(until, iptables_chain(network), ipv4)).empty())
            TRY(put_iptables(until, config, {}, ipv4));
    return {};
}

Result<bool> may_masquerade(std::uint8_t by, const std::string &network, std::span<const ip_addr> addresses) {
    if (by == ENDPOINT_MASQUERADE_IPTABLES)
        return TRY(may_have_chain(iptables_chain(network), true)) ||
               TRY(may_have_chain(iptables_chain(network), false));
    for (const ip_addr &addr : TRY(masqueraded_addresses(network)))
        if (std::ranges::find(addresses, addr) != addresses.end())
            return true;
    return false;
}

Result<std::vector<ip_addr>> masqueraded_addresses(const std::string &network) {
    const net::AddressSets sets = sets_of(network);
    std::vector<ip_addr> all;
    auto netfilter = net::Netlink::open_netfilter();
    for (const std::string &set : {sets.ipv4, sets.ipv6}) {
        auto listed = netfilter ? net::list_set_addresses(*netfilter, sets.table, set)
                                : Result<std::vector<ip_addr>>(netfilter.error());
        if (!listed && net::lacks_nf_tables(listed.error()))
            return std::vector<ip_addr>{};
        std::ranges::copy(TRY(std::move(listed)), std::back_inserter(all));
    }
    return all;
}

// iptables knows no pod, only its subnet.
Result<void> stop_masquerading(std::uint8_t by, const std::string &network, std::span<const ip_addr> addresses) {
    return by == ENDPOINT_MASQUERADE_NFTABLES ? erase_from_nftables(network, addresses) : Result<void>{};
}

Result<void> drop_masquerade(std::uint8_t by, const std::string &network) {
    Errors errors;
    if ((by & ENDPOINT_MASQUERADE_NFTABLES) != 0)
        errors.add(drop_nftables(network));
    const Until until;
    for (const bool ipv4 : {true, false})
        if ((by & ENDPOINT_MASQUERADE_IPTABLES) != 0)
            errors.add(drop_iptables(until, network, ipv4));
    return std::move(errors).result();
}

} // namespace podlane
