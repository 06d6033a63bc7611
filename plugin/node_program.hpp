// SPDX-License-Identifier: MIT
// Runs the node's own programs for packet rules, nft(8) and iptables(8), and writes what the scripts for nft(8) share.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/net/nftables.hpp"
#include "loader/process.hpp"
#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace podlane {

// Whoever runs these programs holds the lock, which the first pod of another network waits for: this long for all of
// them together.
class Until {
  public:
    [[nodiscard]] std::chrono::milliseconds left() const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Time::now());
        return std::max(left, std::chrono::milliseconds(0));
    }

  private:
    using Time = std::chrono::steady_clock;
    Time::time_point end_ = Time::now() + std::chrono::seconds(10);
};

Result<Finished> run(const Until &until, const std::string &program, const std::vector<std::string> &arguments,
                     const std::string &input);
// An exit code other than 0 is an error, after several tries.
Result<void> run_script(const Until &until, const std::string &program, const std::vector<std::string> &arguments,
                        const std::string &script);
Error failed(const std::string &program, const Finished &finished);

// Of family inet, the network's own.
std::string nft_table(const std::string &network);
// The network's own. Names of chains are short: the network's number stands for its name.
std::string iptables_chain(const std::string &network);
// Prefixes of one family in the order of their addresses, none within another: sets of intervals allow no overlap.
std::vector<Prefix> disjoint(const std::vector<Prefix> &prefixes, bool ipv4);
// Has nft(8) create the set, or replace what is in it.
std::string nft_prefix_set(const std::string &network, const std::string &set, const std::vector<Prefix> &prefixes,
                           bool ipv4);
// Whether SET4 and SET6, which nft_prefix_set() made, hold these and nothing else.
Result<bool> has_prefixes(net::Netlink &netfilter, const std::string &network, const std::string &set,
                          const std::vector<Prefix> &prefixes);
// Whether the network's chain is called as it was written, in a table without flags, and accepts what no rule takes.
Result<bool> has_base_chain(net::Netlink &netfilter, const std::string &network, const std::string &chain,
                            const net::BaseChain &wanted);
// Clears the table's flags. The script, for nft(8) in front of the one that adds the chain, has the chain accept, or
// removes it if the kernel calls it elsewhere, which no change of it can end. Empty if nothing is wrong.
std::string nft_chain_repair(net::Netlink &netfilter, const std::string &network, const std::string &chain,
                             const net::BaseChain &wanted);
// Distinguishes the rules of one configuration from those of another: the comment of each.
std::string nft_mark(const std::string &rules);
// Of a version that left prefixes in the order of its configuration: what it was made of is not known.
bool is_mark_of_before(const std::string &comment);

} // namespace podlane
