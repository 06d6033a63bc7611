// SPDX-License-Identifier: MIT
// ipMasq: what a network's pods send out of the cluster leaves with the node's address. The rules are ours by name, one
// set of them a network. The fast path carries nothing that needs them: what it sends stays in the cluster.
#pragma once

#include "maps/abi/endpoint.h"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace podlane {

// nftables, unless the older iptables does the node's NAT or is all there is; an error if neither program is found.
Result<endpoint_masquerade> choose_masquerade();

// Writes the network's rules as the configuration has them now, and the pod's addresses among those they are for. With
// ENDPOINT_MASQUERADE_NONE nftables has them no longer, if rules that were saved before a reboot are back.
// `leased` are the addresses with the length of their subnet.
Result<void> masquerade(endpoint_masquerade by, const cni::Config &config, const std::vector<Prefix> &leased);

// Replaces the network's rules, if there are any, by the same with other CIDRs; whom they are for stays as it is.
Result<void> rewrite_masquerade(std::uint8_t by, const std::string &network, const std::vector<Prefix> &cluster_cidrs,
                                const std::vector<Prefix> &no_masquerade);

// Whether the network's rules are there as they were written, by whichever configuration, and these addresses are among
// those that they are for. iptables knows no pod, only its subnet.
Result<bool> is_masqueraded(endpoint_masquerade by, const std::string &network, std::span<const ip_addr> addresses);

std::string masquerade_is_gone(const endpoint &entry);

// The addresses that nftables masquerades for the network.
Result<std::vector<ip_addr>> masqueraded_addresses(const std::string &network);
// Whether it masquerades one of these; with iptables: whether there is a chain of the network's, as far as no program
// needs to run for it.
Result<bool> may_masquerade(std::uint8_t by, const std::string &network, std::span<const ip_addr> addresses);

// The addresses of pods, which others may get, are no longer among them.
Result<void> stop_masquerading(std::uint8_t by, const std::string &network, std::span<const ip_addr> addresses);

// All rules of the network; `by` has a bit (enum endpoint_masquerade) for each program it was done with.
Result<void> drop_masquerade(std::uint8_t by, const std::string &network);

} // namespace podlane
