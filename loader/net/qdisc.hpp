// SPDX-License-Identifier: MIT
// Queueing disciplines of a link.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>
#include <set>
#include <string>

namespace podlane::net {

// Occupies the slot of clsact, for incoming packets only.
constexpr const char *kIngressQdisc = "ingress";

// Kind of the qdisc for a link's incoming packets: "clsact", kIngressQdisc, or empty if there is none.
Result<std::string> ingress_qdisc(Netlink &netlink, std::uint32_t ifindex);
// All links that have one, of either kind.
Result<std::set<std::uint32_t>> links_with_ingress_qdisc(Netlink &netlink);

// A root qdisc `fq` without pacing of sockets, found again by its handle.
struct FqSpec {
    std::uint32_t ifindex = 0;
    std::uint32_t handle = 0;
    std::uint32_t most_packets = 0; // in all, and of one flow
};

// Whether the kernel has `fq`; loads its module.
Result<bool> has_fq(Netlink &netlink);
// Creates it in place of the kernel's default, or changes the one with this handle. false: nothing changed, because the
// kernel has no fq, another qdisc is there, or the link is gone.
Result<bool> set_fq(Netlink &netlink, const FqSpec &fq);
// Only a root qdisc with this handle. false: was not there.
Result<bool> remove_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle);

} // namespace podlane::net
