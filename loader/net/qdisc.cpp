// SPDX-License-Identifier: MIT
#include "loader/net/qdisc.hpp"

#include "loader/net/htb.hpp"
#include "loader/net/message.hpp"

#include <linux/pkt_sched.h>

#include <algorithm>

namespace podlane::net {
namespace {

constexpr std::uint32_t kChildHandle = 1U << 16U; // beside a qdisc's own
constexpr std::uint32_t kProtocol = 3;            // of htb
constexpr std::uint32_t kTickShift = 6;           // the kernel counts times of qdiscs in 64 ns
constexpr std::uint32_t kQuantum = 60000;         // of several classes; without it the kernel warns
constexpr std::uint32_t kMostDirect = 50000;      // packets that do not belong to the class
constexpr std::uint64_t kMost = UINT32_MAX;

Message fq_message(int flags, const FqSpec &fq) {
    Message message(RTM_NEWQDISC, kChange | flags, qdisc_header(fq.ifindex, TC_H_ROOT, fq.handle));
    message.put(TCA_KIND, std::string("fq")).nest(TCA_OPTIONS, [&] {
        // Pacing of sockets would replace TCP's own, which pl_pace relies on.
        message.put(TCA_FQ_PLIMIT, fq.most_packets)
            .put(TCA_FQ_FLOW_PLIMIT, fq.most_packets)
            .put(TCA_FQ_RATE_ENABLE, std::uint32_t{0})
            .put(TCA_FQ_HORIZON, UINT32_MAX); // by default it drops what is to leave in 10 s, at a very low rate
    });
    return message;
}

Message class_message(const HtbSpec &htb) {
    return htb_class_message({.ifindex = htb.ifindex,
                              .parent = htb.handle,
                              .id = htb.class_id,
                              .bytes_per_s = htb.bytes_per_s,
                              .most_bytes_per_s = htb.bytes_per_s,
                              .burst_ns = htb.burst_ns,
                              .most_burst_ns = htb.burst_ns,
                              .quantum = kQuantum});
}

Message fifo_message(const HtbSpec &htb) {
    Message message(RTM_NEWQDISC, kChange | NLM_F_CREATE | NLM_F_REPLACE,
                    qdisc_header(htb.ifindex, htb.class_id, htb.handle + kChildHandle));
    message.put(TCA_KIND, std::string("bfifo"))
        .put(TCA_OPTIONS, tc_fifo_qopt{static_cast<std::uint32_t>(std::min(htb.most_bytes, kMost))});
    return message;
}

// A request for a qdisc that only a kernel which has it finds invalid.
Result<bool> has_qdisc(Netlink &netlink, const std::string &kind, Message message) {
    const Outcome outcome = request(netlink, std::move(message));
    if (outcome.is({EINVAL, ERANGE}))
        return true;
    if (outcome.is({ENOENT, EOPNOTSUPP}))
        return false;
    return outcome.as_error("looking for the qdisc " + kind);
}

Message new_root(const std::string &kind) {
    Message message(RTM_NEWQDISC, kChange | NLM_F_CREATE | NLM_F_EXCL, qdisc_header(kLoopbackIfindex, TC_H_ROOT, 0));
    return std::move(message.put(TCA_KIND, kind));
}

} // namespace

tcmsg qdisc_header(std::uint32_t ifindex, std::uint32_t parent, std::uint32_t handle) {
    tcmsg header{};
    header.tcm_family = AF_UNSPEC;
    header.tcm_ifindex = static_cast<int>(ifindex);
    header.tcm_parent = parent;
    header.tcm_handle = handle;
    return header;
}

Message htb_message(std::uint32_t ifindex, std::uint32_t handle) {
    Message message(RTM_NEWQDISC, kChange | NLM_F_CREATE | NLM_F_EXCL, qdisc_header(ifindex, TC_H_ROOT, handle));
    message.put(TCA_KIND, std::string("htb")).nest(TCA_OPTIONS, [&] {
        tc_htb_glob options{};
        options.version = kProtocol;
        options.rate2quantum = 1;
        message.put(TCA_HTB_INIT, options).put(TCA_HTB_DIRECT_QLEN, kMostDirect);
    });
    return message;
}

Message htb_class_message(const HtbClass &of) {
    const auto rate = [](std::uint64_t bytes_per_s) {
        tc_ratespec spec{};
        spec.rate = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes_per_s, 1, kMost));
        spec.linklayer = TC_LINKLAYER_ETHERNET;
        return spec;
    };
    const auto ticks = [](std::uint64_t ns) { return static_cast<std::uint32_t>(std::min(ns >> kTickShift, kMost)); };
    tc_htb_opt options{};
    options.rate = rate(of.bytes_per_s);
    options.ceil = rate(of.most_bytes_per_s);
    options.buffer = ticks(of.burst_ns);
    options.cbuffer = ticks(of.most_burst_ns);
    options.quantum = of.quantum;
    Message message(RTM_NEWTCLASS, kChange | NLM_F_CREATE, qdisc_header(of.ifindex, of.parent, of.id));
    message.put(TCA_KIND, std::string("htb")).nest(TCA_OPTIONS, [&] {
        message.put(TCA_HTB_PARMS, options)
            .put(TCA_HTB_RATE64, of.bytes_per_s)
            .put(TCA_HTB_CEIL64, of.most_bytes_per_s);
    });
    return message;
}

Result<std::string> ingress_qdisc(Netlink &netlink, std::uint32_t ifindex) {
    std::string kind;
    // Without NLM_F_ECHO, kernels before 6.12 send the answer to subscribers only.
    const Outcome outcome =
        request(netlink, Message(RTM_GETQDISC, kChange | NLM_F_ECHO, qdisc_header(ifindex, TC_H_INGRESS, 0)),
                [&](nlmsghdr *answer) {
                    if (answer->nlmsg_type == RTM_NEWQDISC)
                        kind = Attributes<TCA_MAX>(answer, sizeof(tcmsg)).text(TCA_KIND);
                });
    if (!outcome.ok() && !outcome.is({ENOENT, ENODEV}))
        return outcome.as_error("looking for the ingress qdisc of interface " + std::to_string(ifindex));
    return kind;
}

Result<std::set<std::uint32_t>> links_with_ingress_qdisc(Netlink &netlink) {
    const auto found = TRY(dump<std::uint32_t>(
        netlink, [] { return Message(RTM_GETQDISC, kDump, qdisc_header(0, 0, 0)); },
        [](nlmsghdr *answer) -> std::optional<std::uint32_t> {
            const auto *header = static_cast<tcmsg *>(nlmsg_data(answer));
            if (answer->nlmsg_type != RTM_NEWQDISC || header->tcm_parent != TC_H_INGRESS)
                return std::nullopt;
            return static_cast<std::uint32_t>(header->tcm_ifindex);
        },
        "listing the qdiscs"));
    return std::set<std::uint32_t>(found.begin(), found.end());
}

Result<bool> has_fq(Netlink &netlink) {
    Message message = new_root("fq");
    message.nest(TCA_OPTIONS, [&] { message.put(TCA_FQ_PLIMIT, std::uint8_t{0}); }); // too short
    return has_qdisc(netlink, "fq", std::move(message));
}

Result<bool> has_htb(Netlink &netlink) {
    return has_qdisc(netlink, "htb", new_root("htb")); // without options
}

Result<bool> set_fq(Netlink &netlink, const FqSpec &fq) {
    Outcome outcome = request(netlink, fq_message(NLM_F_CREATE | NLM_F_EXCL, fq));
    if (outcome.is({EEXIST})) // only the one with this handle can be changed
        outcome = request(netlink, fq_message(0, fq));
    return changed(outcome, {EEXIST, EINVAL, ENODEV, ENOENT, EOPNOTSUPP},
                   "adding the qdisc fq to interface " + std::to_string(fq.ifindex));
}

Result<bool> set_htb(Netlink &netlink, const HtbSpec &htb) {
    const std::string doing = "adding the qdisc htb to interface " + std::to_string(htb.ifindex);
    const std::initializer_list<int> nothing_to_do = {EEXIST, EINVAL, ENODEV, ENOENT, EOPNOTSUPP};
    const bool is_new = TRY(changed(request(netlink, htb_message(htb.ifindex, htb.handle)), nothing_to_do, doing));
    for (Message (*make)(const HtbSpec &) : {&class_message, &fifo_message}) {
        const Outcome outcome = request(netlink, make(htb));
        if (outcome.ok())
            continue;
        if (is_new)
            (void)remove_root_qdisc(netlink, htb.ifindex, htb.handle);
        return changed(outcome, nothing_to_do, doing); // of a foreign qdisc there is no such class
    }
    return true;
}

Result<std::optional<std::uint64_t>> htb_class_rate(Netlink &netlink, std::uint32_t ifindex, std::uint32_t class_id) {
    std::optional<std::uint64_t> rate;
    const Outcome outcome = // NLM_F_ECHO: as in ingress_qdisc()
        request(netlink, Message(RTM_GETTCLASS, kChange | NLM_F_ECHO, qdisc_header(ifindex, 0, class_id)),
                [&](nlmsghdr *answer) {
                    const Attributes<TCA_MAX> of(answer, sizeof(tcmsg));
                    const Attributes<TCA_HTB_MAX> htb(of.at(TCA_OPTIONS));
                    rate = htb.get<std::uint64_t>(TCA_HTB_RATE64); // only if it has more than 32 bits
                    if (const auto options = htb.get<tc_htb_opt>(TCA_HTB_PARMS); options && !rate)
                        rate = options->rate.rate;
                });
    if (!outcome.ok() && !outcome.is({EINVAL, ENOENT, ENODEV, EOPNOTSUPP}))
        return outcome.as_error("looking for the class of the limit on interface " + std::to_string(ifindex));
    return rate;
}

Result<LeafQdisc> leaf_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t class_id) {
    LeafQdisc leaf;
    const Outcome outcome = // NLM_F_ECHO: as in ingress_qdisc()
        request(netlink, Message(RTM_GETQDISC, kChange | NLM_F_ECHO, qdisc_header(ifindex, class_id, 0)),
                [&](nlmsghdr *answer) {
                    const Attributes<TCA_MAX> of(answer, sizeof(tcmsg));
                    leaf.kind = of.text(TCA_KIND);
                    leaf.limit = of.get<tc_fifo_qopt>(TCA_OPTIONS).value_or(tc_fifo_qopt{}).limit;
                });
    if (!outcome.ok() && !outcome.is({EINVAL, ENOENT, ENODEV, EOPNOTSUPP}))
        return outcome.as_error("looking for the queue of the limit on interface " + std::to_string(ifindex));
    return leaf;
}

Result<bool> has_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle) {
    const Outcome outcome = // NLM_F_ECHO: as in ingress_qdisc()
        request(netlink, Message(RTM_GETQDISC, kChange | NLM_F_ECHO, qdisc_header(ifindex, TC_H_ROOT, handle)));
    if (!outcome.ok() && !outcome.is({EINVAL, ENOENT, ENODEV})) // EINVAL: it has another handle
        return outcome.as_error("looking for the root qdisc of interface " + std::to_string(ifindex));
    return outcome.ok();
}

Result<bool> remove_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle) {
    return changed(request(netlink, Message(RTM_DELQDISC, kChange, qdisc_header(ifindex, TC_H_ROOT, handle))),
                   {EINVAL, ENOENT, ENODEV}, "removing the qdisc of interface " + std::to_string(ifindex));
}

} // namespace podlane::net
