// SPDX-License-Identifier: MIT
#include "loader/net/qdisc.hpp"

#include "loader/net/message.hpp"

#include <linux/pkt_sched.h>

namespace podlane::net {
namespace {

constexpr std::uint32_t kLoopbackIfindex = 1;

tcmsg header_for(std::uint32_t ifindex, std::uint32_t parent, std::uint32_t handle) {
    tcmsg header{};
    header.tcm_family = AF_UNSPEC;
    header.tcm_ifindex = static_cast<int>(ifindex);
    header.tcm_parent = parent;
    header.tcm_handle = handle;
    return header;
}

Message fq_message(int flags, const FqSpec &fq) {
    Message message(RTM_NEWQDISC, kChange | flags, header_for(fq.ifindex, TC_H_ROOT, fq.handle));
    message.put(TCA_KIND, std::string("fq")).nest(TCA_OPTIONS, [&] {
        // Pacing of sockets would replace TCP's own, which pl_pace relies on.
        message.put(TCA_FQ_PLIMIT, fq.most_packets)
            .put(TCA_FQ_FLOW_PLIMIT, fq.most_packets)
            .put(TCA_FQ_RATE_ENABLE, std::uint32_t{0});
    });
    return message;
}

} // namespace

Result<std::string> ingress_qdisc(Netlink &netlink, std::uint32_t ifindex) {
    std::string kind;
    // Without NLM_F_ECHO, kernels before 6.12 send the answer to subscribers only.
    const Outcome outcome =
        ask(netlink, Message(RTM_GETQDISC, kChange | NLM_F_ECHO, header_for(ifindex, TC_H_INGRESS, 0)),
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
        netlink, [] { return Message(RTM_GETQDISC, kDump, header_for(0, 0, 0)); },
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
    // An invalid request: a kernel with fq finds that the number is too short.
    Message message(RTM_NEWQDISC, kChange | NLM_F_CREATE | NLM_F_EXCL, header_for(kLoopbackIfindex, TC_H_ROOT, 0));
    message.put(TCA_KIND, std::string("fq")).nest(TCA_OPTIONS, [&] { message.put(TCA_FQ_PLIMIT, std::uint8_t{0}); });
    const Outcome outcome = ask(netlink, std::move(message));
    if (outcome.is({EINVAL, ERANGE}))
        return true;
    if (outcome.is({ENOENT, EOPNOTSUPP}))
        return false;
    return outcome.as_error("looking for the qdisc fq");
}

Result<bool> set_fq(Netlink &netlink, const FqSpec &fq) {
    Outcome outcome = ask(netlink, fq_message(NLM_F_CREATE | NLM_F_EXCL, fq));
    if (outcome.is({EEXIST})) // only the one with this handle can be changed
        outcome = ask(netlink, fq_message(0, fq));
    return changed(outcome, {EEXIST, EINVAL, ENODEV, ENOENT, EOPNOTSUPP},
                   "adding the qdisc fq to interface " + std::to_string(fq.ifindex));
}

Result<bool> remove_root_qdisc(Netlink &netlink, std::uint32_t ifindex, std::uint32_t handle) {
    return changed(ask(netlink, Message(RTM_DELQDISC, kChange, header_for(ifindex, TC_H_ROOT, handle))),
                   {EINVAL, ENOENT, ENODEV}, "removing the qdisc of interface " + std::to_string(ifindex));
}

} // namespace podlane::net
