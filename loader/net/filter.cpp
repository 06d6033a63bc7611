// SPDX-License-Identifier: MIT
#include "loader/net/filter.hpp"

#include "loader/net/message.hpp"

#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>

namespace podlane::net {
namespace {

std::optional<Filter> parse_filter(nlmsghdr *message) {
    constexpr unsigned kPriorityShift = 16; // the low half of tcm_info is the protocol
    const auto *header = static_cast<tcmsg *>(nlmsg_data(message));
    // The kernel first names the chain, and each priority with its kind alone.
    if (message->nlmsg_type != RTM_NEWTFILTER || header->tcm_handle == 0)
        return std::nullopt;
    const Attributes<TCA_MAX> attributes(message, sizeof *header);
    Filter filter;
    filter.kind = attributes.text(TCA_KIND);
    // Of u32 the kernel also dumps its hash tables, whose handle has no node.
    if (filter.kind == "u32" && TC_U32_NODE(header->tcm_handle) == 0)
        return std::nullopt;
    filter.priority = header->tcm_info >> kPriorityShift;
    filter.handle = header->tcm_handle;
    if (filter.kind == "bpf") {
        const Attributes<TCA_BPF_MAX> options(attributes.at(TCA_OPTIONS));
        filter.name = options.text(TCA_BPF_NAME);
        filter.program_id = options.get<std::uint32_t>(TCA_BPF_ID).value_or(0);
    }
    return filter;
}

} // namespace

Result<std::vector<Filter>> list_filters(Netlink &netlink, std::uint32_t ifindex, ClsactSide side) {
    tcmsg header{};
    header.tcm_family = AF_UNSPEC;
    header.tcm_ifindex = static_cast<int>(ifindex);
    header.tcm_parent = TC_H_MAKE(TC_H_CLSACT, side == ClsactSide::ingress ? TC_H_MIN_INGRESS : TC_H_MIN_EGRESS);
    const auto make = [&] { return Message(RTM_GETTFILTER, kDump, header); };
    auto filters =
        dump<Filter>(netlink, make, parse_filter, "listing the filters of interface " + std::to_string(ifindex));
    // No qdisc there.
    if (!filters && filters.error().system_errno == EINVAL)
        return std::vector<Filter>{};
    return filters;
}

} // namespace podlane::net
