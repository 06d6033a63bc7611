// SPDX-License-Identifier: MIT
#include "plugin/node_program.hpp"

#include "loader/net/prefix_set.hpp"
#include "maps/hash.hpp"
#include "maps/tables.hpp"
#include "plugin/history.hpp"
#include "plugin/program.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace podlane {
namespace {

// Another program's transaction at the same moment makes ours fail; the next one finds the new state.
constexpr int kMostTries = 5;

std::string rules_of(const std::string &program) {
    return program == "nft" ? R"(rules of "ipMasq" or "egress")" : R"(rules of "ipMasq")";
}

// It needs the same of the kernel, and no rule of Podlane's.
std::string command_like(const std::string &program) {
    return program == "nft" ? "`nft list ruleset`" : "`" + program.substr(0, program.find('-')) + " -t nat -S`";
}

} // namespace

Result<Finished> run(const Until &until, const std::string &program, const std::vector<std::string> &arguments,
                     const std::string &input) {
    const Step step(STEP_MASQUERADE);
    const std::string path = TRY(find_program(program));
    if (path.empty())
        return Error{ErrorCode::plugin_not_available,
                     program + " is not installed, and \"ipMasq\" or \"egress\" needs it",
                     "install it, or take the key out"};
    auto finished =
        run_process(path, {"LC_ALL=C", "PATH=/usr/sbin:/sbin:/usr/bin:/bin"}, input, arguments, until.left());
    if (finished)
        return finished;
    if (finished.error().code == ErrorCode::try_again_later)
        finished.error().hint = "those that one call runs have 10 s together: see how long " + command_like(program) +
                                " takes on the node, and try again";
    return std::move(finished).error().context(rules_of(program));
}

Error failed(const std::string &program, const Finished &finished) {
    return {ErrorCode::io_failure, rules_of(program) + ": " + program + " " + how_it_ended(finished),
            finished.signal != 0 ? remedy_of_signal(program, finished)
                                 : "see whether " + command_like(program) + " on the node fails too, and try again"};
}

Result<void> run_script(const Until &until, const std::string &program, const std::vector<std::string> &arguments,
                        const std::string &script) {
    Finished finished;
    for (int tried = 0; tried < kMostTries; ++tried) {
        finished = TRY(run(until, program, arguments, script));
        if (finished.exit_code == 0)
            return {};
    }
    return failed(program, finished);
}

std::string nft_table(const std::string &network) { return "podlane-" + network; }

std::string iptables_chain(const std::string &network) {
    std::array<char, 24> name{};
    std::snprintf(name.data(), name.size(), "PODLANE-%08x", network_id(network));
    return name.data();
}

std::vector<Prefix> disjoint(const std::vector<Prefix> &prefixes, bool ipv4) {
    std::vector<Prefix> kept;
    for (const Prefix &prefix : prefixes) {
        if (is_ipv4(prefix.addr) != ipv4 ||
            std::ranges::any_of(kept, [&](const Prefix &one) { return contains(one, prefix); }))
            continue;
        std::erase_if(kept, [&](const Prefix &one) { return contains(prefix, one); });
        kept.push_back(masked(prefix));
    }
    std::ranges::sort(
        kept, [](const Prefix &a, const Prefix &b) { return std::memcmp(&a.addr, &b.addr, sizeof a.addr) < 0; });
    return kept;
}

std::string nft_prefix_set(const std::string &network, const std::string &set, const std::vector<Prefix> &prefixes,
                           bool ipv4) {
    const std::string name = "inet " + nft_table(network) + " " + set;
    std::string script = "add set " + name + " { type " + (ipv4 ? "ipv4_addr" : "ipv6_addr") + "; flags interval; }\n";
    script += "flush set " + name + "\n";
    for (const Prefix &prefix : disjoint(prefixes, ipv4))
        script += "add element " + name + " { " + to_string(prefix) + " }\n";
    return script;
}

Result<bool> has_prefixes(net::Netlink &netfilter, const std::string &network, const std::string &set,
                          const std::vector<Prefix> &prefixes) {
    for (const bool ipv4 : {true, false})
        if (TRY(net::list_prefixes(netfilter, nft_table(network), set + (ipv4 ? "4" : "6"))) !=
            disjoint(prefixes, ipv4))
            return false;
    return true;
}

Result<bool> has_base_chain(net::Netlink &netfilter, const std::string &network, const std::string &chain,
                            const net::BaseChain &wanted) {
    return TRY(net::find_base_chain(netfilter, nft_table(network), chain)) == wanted;
}

std::string nft_chain_repair(net::Netlink &netfilter, const std::string &network, const std::string &chain,
                             const net::BaseChain &wanted) {
    const auto found = net::find_base_chain(netfilter, nft_table(network), chain);
    if (!found || !*found)
        return {};
    if ((*found)->table_flags != 0) // if it fails, so does what follows, whose error counts
        static_cast<void>(net::clear_table_flags(netfilter, nft_table(network)));
    const std::string name = "chain inet " + nft_table(network) + " " + chain;
    if (!(*found)->is_called_as(wanted))
        return "flush " + name + "\ndelete " + name + "\n";
    return (*found)->policy == wanted.policy ? "" : "add " + name + " { policy accept; }\n";
}

std::string nft_mark(const std::string &rules) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "podlane v2 %016" PRIx64, fnv1a_64(rules));
    return text.data();
}

bool is_mark_of_before(const std::string &comment) {
    return comment.starts_with("podlane ") && !comment.starts_with("podlane v2 ");
}

} // namespace podlane
