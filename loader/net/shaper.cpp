// SPDX-License-Identifier: MIT
#include "loader/net/shaper.hpp"

#include "loader/net/htb.hpp"
#include "loader/net/message.hpp"
#include "loader/net/qdisc.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/pkt_sched.h>
#include <linux/pkt_cls.h>

#include <algorithm>
#include <array>
#include <vector>

namespace podlane::net {
namespace {

constexpr std::uint64_t kLeastQuantum = 1514, kLargestQuantum = 60000; // bytes until it is the next class's turn
constexpr std::uint64_t kUnheld = 125'000'000'000;                     // bytes per second
constexpr std::uint32_t kFlows = 16;
constexpr std::uint64_t kFlowsShare = 2; // of the rate: 1/2

// Numbers of classes, beside the qdisc's handle.
constexpr std::uint32_t kWhole = 0x10, kTcp = 0x11, kOthers = 0x12, kFirstFlow = 0x20;

struct ShaperClass {
    std::uint32_t parent, number;
    std::uint64_t rate, burst_ns;
};

std::vector<ShaperClass> shaper_classes(const ShaperSpec &shaper) {
    const std::uint64_t others = std::max<std::uint64_t>(shaper.bytes_per_s / kFlowsShare, 1);
    const std::uint64_t flow = std::max<std::uint64_t>(others / kFlows, 1);
    std::vector<ShaperClass> all = {{0, kWhole, shaper.bytes_per_s, shaper.burst_ns},
                                    {kWhole, kTcp, kUnheld, shaper.burst_ns},
                                    {kWhole, kOthers, others, shaper.burst_ns}};
    for (std::uint32_t i = 0; i < kFlows; ++i)
        all.push_back({kOthers, kFirstFlow + i, flow, 2 * kLeastQuantum * 1'000'000'000 / flow});
    return all;
}

Message shaper_class_message(const ShaperSpec &shaper, const ShaperClass &one) {
    const std::uint64_t quantum = std::clamp(shaper.bytes_per_s / 500, kLeastQuantum, kLargestQuantum); // 2 ms
    const HtbClass htb{.ifindex = shaper.ifindex,
                       .parent = shaper.handle | one.parent,
                       .id = shaper.handle | one.number,
                       .bytes_per_s = one.rate,
                       .most_bytes_per_s = std::max(one.rate, shaper.bytes_per_s),
                       .burst_ns = one.burst_ns,
                       .most_burst_ns = shaper.burst_ns,
                       .quantum = static_cast<std::uint32_t>(quantum)};
    return htb_class_message(htb);
}

/*
 * Classic BPF, which needs no program to be loaded: the number of the class, or 0 for what passes by. Fragments after
 * the first have no ports, so all fragments are of one class.
 */
std::array<sock_filter, 32> classifier(std::uint32_t handle) {
    constexpr std::uint32_t kSmall = 256;             // bytes
    constexpr std::uint32_t kMultiplier = 0x9e3779b1; // golden ratio: its upper bits depend on all of a number
    const std::uint32_t flow = handle | kFirstFlow;
    return {{
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 11, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, 28),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20), // 3: IPv6
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 25, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_FRAGMENT, 23, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMPV6, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kSmall, 0, 22),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 54), // ports
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 50), // end of the destination
        BPF_STMT(BPF_JMP | BPF_JA, 11),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), // 13: IPv4
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 15, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMP, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kSmall, 0, 13),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 9, 0), // offset or more fragments
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),
        BPF_STMT(BPF_LD | BPF_W | BPF_IND, 14), // ports
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 30), // destination
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0), // 24: the hash
        BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, kMultiplier),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 28), // 4 bits: one of kFlows
        BPF_STMT(BPF_ALU | BPF_OR | BPF_K, flow),
        BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_RET | BPF_K, flow),
        BPF_STMT(BPF_RET | BPF_K, handle | kTcp),
        BPF_STMT(BPF_RET | BPF_K, 0),
    }};
}

Message filter_message(const ShaperSpec &shaper) {
    tcmsg header = qdisc_header(shaper.ifindex, shaper.handle, 1);
    header.tcm_info = TC_H_MAKE(1U << 16U, htons(ETH_P_ALL)); // the first one, for all protocols
    const auto program = classifier(shaper.handle);
    Message message(RTM_NEWTFILTER, kChange | NLM_F_CREATE | NLM_F_EXCL, header);
    message.put(TCA_KIND, std::string("bpf")).nest(TCA_OPTIONS, [&] {
        message.put(TCA_BPF_OPS_LEN, static_cast<std::uint16_t>(program.size())).put(TCA_BPF_OPS, program);
    });
    return message;
}

std::vector<Message> shaper_messages(const ShaperSpec &shaper, bool may_create) {
    std::vector<Message> all;
    if (may_create)
        all.push_back(htb_message(shaper.ifindex, shaper.handle));
    for (const ShaperClass &one : shaper_classes(shaper))
        all.push_back(shaper_class_message(shaper, one));
    if (may_create)
        all.push_back(filter_message(shaper));
    return all;
}

// Of a foreign qdisc there are no such classes.
Result<bool> put_shaper(Netlink &netlink, const ShaperSpec &shaper, bool may_create) {
    std::vector<Message> messages = shaper_messages(shaper, may_create);
    const std::vector<Outcome> outcomes = request_all(netlink, messages);
    const auto failed = std::ranges::find_if(outcomes, [&](const Outcome &one) {
        const bool is_there_already = one.is({EEXIST}) && (&one == &outcomes.front() || &one == &outcomes.back());
        return !one.ok() && !is_there_already;
    });
    if (failed == outcomes.end())
        return true;
    if (may_create && outcomes.front().ok())
        TRY(remove_root_qdisc(netlink, shaper.ifindex, shaper.handle));
    return changed(*failed, {EINVAL, ENODEV, ENOENT, EOPNOTSUPP},
                   "adding the qdisc htb to interface " + std::to_string(shaper.ifindex));
}

} // namespace

Result<bool> set_shaper(Netlink &netlink, const ShaperSpec &shaper) { return put_shaper(netlink, shaper, true); }

Result<bool> change_shaper(Netlink &netlink, const ShaperSpec &shaper) { return put_shaper(netlink, shaper, false); }

} // namespace podlane::net
