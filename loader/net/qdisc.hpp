// SPDX-License-Identifier: MIT
// Queueing disciplines of a link.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>
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

// A root qdisc `htb` with one class, which holds its packets to a rate. Packets whose priority is not the class's
// number leave at once.
struct HtbSpec {
    std::uint32_t ifindex = 0;
    std::uint32_t handle = 0;
    std::uint32_t class_id = 0;
    std::uint64_t bytes_per_s = 0;
    std::uint64_t burst_ns = 0;   // time at the rate; so much may leave at once
    std::uint64_t most_bytes = 0; // that wait
};

// Whether the kernel has `fq`; loads its module.
Result<bool> has_fq(Netlink &netlink);
// Whether the kernel has `htb`; loads its module.
Result<bool> has_htb(Netlink &netlink);
// Creates it in place of the kernel's default, or changes the one with this handle. false: nothing changed, because the
// kernel has no fq, another qdisc is there, or the link is gone.
Result<bool> set_fq(Netlink &netlink, const FqSpec &fq);
// As set_fq().
Result<bool> set_htb(Netlink &netlink, const HtbSpec &htb);
// Of a class of `htb`, in bytes per second; none if the link has no such class.
Result<std::optional<std::uint64_t>> htb_class_rate(Netlink &netlink, std::uint32_t ifindex, std::uint32_t class_id);
// The queue of a class of `htb`; no kind if the link has no such class, or the class one that the kernel made.
struct LeafQdisc {
    std::string kind{};
    std::uint32_t limit = 0; // of `bfifo`, in bytes
};
Result<LeafQdisc> leaf_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t class_id);
Result<bool> has_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle);
// Only a root qdisc with this handle. false: was not there.
Result<bool> remove_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle);

} // namespace podlane::net
