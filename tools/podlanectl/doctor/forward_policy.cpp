// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/forward_policy.hpp"

#include "maps/text.hpp"
#include "tools/podlanectl/doctor/forward_rules.hpp"
#include "tools/podlanectl/doctor/rule_text.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace podlane::ctl::forwarding {
namespace {

using Words = std::vector<std::string_view>;

enum class Verdict { none, accept, drop, leave, jump, go_to, unknown };

struct Rule {
    Verdict verdict = Verdict::none;
    std::string_view target{};     // of a jump
    bool is_unconditional = false; // surely so
    bool may_be_pods = true;       // a pod's new connection may meet its conditions
};

struct Chain {
    bool at_forward = false;
    bool drops = false; // by its policy
    std::vector<Rule> rules{};
};
using Chains = std::map<std::string_view, Chain, std::less<>>;

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> all) {
    return std::ranges::find(all, word) != all.end();
}

// "docker0", "cali*", "cali+"
bool matches_any(std::string_view pattern, const std::vector<std::string> &names) {
    const bool is_prefix = pattern.ends_with('*') || pattern.ends_with('+');
    return std::ranges::any_of(names, [&](std::string_view name) {
        return is_prefix ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
    });
}

// One side of a rule, the incoming interface or the outgoing one: whether it may be a pod's, or one that leads away.
struct Side {
    bool may_be_pod = true;
    bool may_be_way = true;
    bool names_pod = false; // then the other side is not judged

    void limit_to(std::string_view pattern, const Pods &pods) {
        may_be_pod = may_be_pod && matches_any(pattern, pods.interfaces);
        names_pod = may_be_pod;
        may_be_way = may_be_way && matches_any(pattern, pods.ways);
    }
};

bool may_forward_pods(const Side &in, const Side &out) {
    return in.names_pod || out.names_pod || (in.may_be_pod && (out.may_be_pod || out.may_be_way)) ||
           (in.may_be_way && out.may_be_pod);
}

// Only a source that is surely no pod's: pods may be meant to reach any destination.
bool may_be_source(std::string_view text, const Pods &pods) {
    const auto source = parse_prefix(text);
    return !source || std::ranges::any_of(pods.ranges, [&](const Prefix &range) {
        return contains(*source, range) || contains(range, *source);
    });
}

// "established,related"
bool may_be_new(std::string_view states) {
    const auto all = split(states, ",");
    return all.empty() || std::ranges::any_of(all, [](std::string_view state) {
               return !is_any_of(state, {"established", "related", "invalid", "ESTABLISHED", "RELATED", "INVALID"});
           });
}

bool is_icmp(std::string_view protocol) { return is_any_of(protocol, {"icmp", "icmpv6", "ipv6-icmp", "1", "58"}); }

// The words of "{ established, related }" or "{ invalid : drop, established : accept }" behind `at`.
std::vector<std::string_view> elements(const Words &words, std::size_t at) {
    std::vector<std::string_view> all;
    if (at >= words.size() || words[at] != "{")
        return all;
    for (bool is_value = false; ++at < words.size() && words[at] != "}";) {
        if (words[at] == ":")
            is_value = true;
        else if (!is_value)
            all.push_back(words[at].substr(0, words[at].find(',')));
        is_value = is_value && (words[at] == ":" || words[at] == "jump" || words[at] == "goto");
    }
    return all;
}

bool nft_state_may_be_new(const Words &words, std::size_t at) {
    if (at < words.size() && words[at] == "vmap")
        ++at;
    if (at >= words.size() || words[at] != "{")
        return at >= words.size() || may_be_new(words[at]);
    const auto all = elements(words, at);
    return all.empty() || std::ranges::any_of(all, may_be_new);
}

// The rule's own, behind all else; elements of sets have theirs.
void remove_comment(Words &words) {
    const auto last = std::find(words.rbegin(), words.rend(), "comment");
    if (last != words.rend() && std::find(words.rbegin(), last, "}") == last)
        words.erase(last.base() - 1, words.end());
}

Rule nft_rule(Words words, const Pods &pods) {
    remove_comment(words);
    if (words.size() >= 5 && words[0] == "counter" && words[1] == "packets")
        words.erase(words.begin(), words.begin() + 5);
    Rule rule;
    rule.is_unconditional = !words.empty() && is_any_of(words[0], {"drop", "reject"});
    Side in, out;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view next = i + 1 < words.size() ? words[i + 1] : "";
        if (is_any_of(words[i], {"iifname", "iif", "oifname", "oif"})) {
            if (next.size() > 2 && next.starts_with('"')) // else a set, a negation or a concatenation
                (words[i].starts_with('i') ? in : out).limit_to(next.substr(1, next.size() - 2), pods);
        } else if (words[i] == "ct" && next == "state")
            rule.may_be_pods = rule.may_be_pods && nft_state_may_be_new(words, i + 2);
        else if (words[i] == "l4proto" || words[i] == "protocol" || words[i] == "nexthdr")
            rule.may_be_pods = rule.may_be_pods && !is_icmp(next);
        else if ((is_any_of(words[i], {"icmp", "icmpv6"}) && is_any_of(next, {"type", "code"})) ||
                 (words[i] == "status" && next == "dnat")) // accepted as translated, like kube-proxy's marked packets
            rule.may_be_pods = false;
        else if (words[i] == "saddr" && i > 0 && is_any_of(words[i - 1], {"ip", "ip6"}))
            rule.may_be_pods = rule.may_be_pods && may_be_source(next, pods);
        else if (is_any_of(words[i], {"vmap", "queue", "prefix"}) || (words[i] == "jump" && next == "{"))
            rule.verdict = Verdict::unknown;
        else if (rule.verdict == Verdict::none && is_any_of(words[i], {"jump", "goto"})) {
            rule.verdict = words[i] == "jump" ? Verdict::jump : Verdict::go_to;
            rule.target = next;
        } else if (rule.verdict == Verdict::none && words[i] == "accept")
            rule.verdict = Verdict::accept;
        else if (rule.verdict == Verdict::none && words[i] == "return")
            rule.verdict = Verdict::leave;
        else if (rule.verdict == Verdict::none && is_any_of(words[i], {"drop", "reject"}))
            rule.verdict = Verdict::drop;
    }
    rule.may_be_pods = rule.may_be_pods && may_forward_pods(in, out);
    return rule;
}

Verdict verdict_of_target(std::string_view target) {
    if (is_any_of(target, {"DROP", "REJECT"}))
        return Verdict::drop;
    if (target == "ACCEPT")
        return Verdict::accept;
    if (target == "RETURN")
        return Verdict::leave;
    return is_any_of(target, {"QUEUE", "NFQUEUE"}) ? Verdict::unknown : Verdict::jump; // to a chain, or none
}

Rule iptables_rule(const Words &words, const Pods &pods) { // "-A", the chain, …
    Rule rule;
    Side in, out;
    for (std::size_t i = 2; i + 1 < words.size(); ++i) {
        const std::string_view next = words[i + 1];
        const bool is_negated = words[i - 1] == "!";
        if (words[i] == "-j" || words[i] == "-g") {
            rule.verdict = words[i] == "-g" ? Verdict::go_to : verdict_of_target(next);
            rule.target = next;
            rule.is_unconditional = i == 2;
        } else if (is_negated)
            continue;
        else if (words[i] == "-i")
            in.limit_to(next, pods);
        else if (words[i] == "-o")
            out.limit_to(next, pods);
        else if (words[i] == "-s")
            rule.may_be_pods = rule.may_be_pods && may_be_source(next, pods);
        else if (words[i] == "-p")
            rule.may_be_pods = rule.may_be_pods && !is_icmp(next);
        else if (words[i] == "--ctstate" || words[i] == "--state")
            rule.may_be_pods = rule.may_be_pods && may_be_new(next);
    }
    rule.may_be_pods = rule.may_be_pods && may_forward_pods(in, out);
    return rule;
}

// The rules of `name` and of the chains it leads to.
bool may_accept(const Chains &chains, std::string_view name, std::set<std::string_view> &seen) {
    const auto chain = chains.find(name);
    if (chain == chains.end() || is_chain_of_kube_proxy(name) || !seen.insert(name).second)
        return false;
    return std::ranges::any_of(chain->second.rules, [&](const Rule &rule) {
        const bool leads_on = rule.verdict == Verdict::jump || rule.verdict == Verdict::go_to;
        return rule.may_be_pods && (rule.verdict == Verdict::accept || rule.verdict == Verdict::unknown ||
                                    (leads_on && may_accept(chains, rule.target, seen)));
    });
}

bool refuses(const Chains &chains, const Chain &base) {
    std::set<std::string_view> seen;
    for (const Rule &rule : base.rules) {
        if (rule.verdict == Verdict::drop && rule.is_unconditional)
            return true;
        const bool leads_on = rule.verdict == Verdict::jump || rule.verdict == Verdict::go_to;
        const bool ends_here = rule.verdict == Verdict::leave || rule.verdict == Verdict::go_to;
        if (rule.may_be_pods && (rule.verdict == Verdict::accept || rule.verdict == Verdict::unknown ||
                                 (ends_here && !base.drops) || (leads_on && may_accept(chains, rule.target, seen))))
            return false;
    }
    return base.drops;
}

void add_refusing(const Chains &chains, std::string_view table, std::string_view family,
                  std::vector<std::string> &found) {
    for (const auto &[name, chain] : chains)
        if (chain.at_forward && refuses(chains, chain))
            found.push_back("chain " + std::string(table) + " " + std::string(name) + " (" + std::string(family) + ")");
}

} // namespace

std::vector<std::string> refusing_chains_of_nft(std::string_view listing, const Pods &pods) {
    std::vector<std::string> found;
    Chains chains;
    bool is_dormant = false;
    const auto read = [&](const NftPlace &at, std::string_view line, const Words &words) {
        if (at.chain.empty())
            is_dormant = is_dormant || (words[0] == "flags" && line.find("dormant") != std::string_view::npos);
        else if (words.size() >= 4 && words[0] == "type" && words[2] == "hook") {
            chains[at.chain].at_forward = words[3] == "forward";
            chains[at.chain].drops = line.find("policy drop") != std::string_view::npos;
        } else
            chains[at.chain].rules.push_back(nft_rule(words, pods));
    };
    each_nft_line(listing, read, [&](const NftPlace &at) {
        const bool meets_pods =
            at.family == "inet" || (at.family == "ip" && pods.uses_ipv4) || (at.family == "ip6" && pods.uses_ipv6);
        if (meets_pods && !is_dormant && !at.table.starts_with("podlane-"))
            add_refusing(chains, at.table, at.family, found);
        chains.clear();
        is_dormant = false;
    });
    return found;
}

std::vector<std::string> refusing_chains_of_iptables(std::string_view listing, std::string_view family,
                                                     const Pods &pods) {
    std::vector<std::string> found;
    Chains chains;
    each_line(listing, [&](std::string_view line) {
        const auto words = words_of(line);
        if (words.size() >= 2 && words[0] == ":FORWARD") {
            chains["FORWARD"].at_forward = true;
            chains["FORWARD"].drops = words[1] == "DROP";
        } else if (words.size() >= 2 && words[0] == "-A")
            chains[words[1]].rules.push_back(iptables_rule(words, pods));
    });
    if (family == "ip6tables" ? pods.uses_ipv6 : pods.uses_ipv4)
        add_refusing(chains, "filter", family, found);
    return found;
}

} // namespace podlane::ctl::forwarding
