// SPDX-License-Identifier: MIT
#include "loader/net/next_hop.hpp"

#include "loader/net/message.hpp"

namespace podlane::net {
namespace {

bool leads_to(const ip_addr &next_hop, std::uint32_t ifindex, std::optional<std::uint32_t> link,
              const Attributes<RTA_MAX> &attributes) {
    return link == ifindex && attributes.addr(RTA_GATEWAY) == next_hop;
}

bool has_path_to(const ip_addr &next_hop, std::uint32_t ifindex, const Attributes<RTA_MAX> &route) {
    if (leads_to(next_hop, ifindex, route.get<std::uint32_t>(RTA_OIF), route))
        return true;
    nlattr *paths = route.at(RTA_MULTIPATH);
    if (!paths)
        return false;
    int rest = nla_len(paths);
    for (auto *hop = static_cast<rtnexthop *>(nla_data(paths));
         rest >= static_cast<int>(sizeof *hop) && RTNH_OK(hop, rest);) {
        const Attributes<RTA_MAX> attributes(reinterpret_cast<nlattr *>(RTNH_DATA(hop)),
                                             hop->rtnh_len - static_cast<int>(RTNH_LENGTH(0)));
        if (leads_to(next_hop, ifindex, static_cast<std::uint32_t>(hop->rtnh_ifindex), attributes))
            return true;
        rest -= static_cast<int>(NLMSG_ALIGN(hop->rtnh_len));
        hop = RTNH_NEXT(hop);
    }
    return false;
}

} // namespace

Result<std::optional<Prefix>> find_route_by(Netlink &netlink, const ip_addr &next_hop, std::uint32_t ifindex) {
    rtmsg selector{};
    selector.rtm_family = number(family_of(next_hop));
    const auto found = TRY(dump<Prefix>(
        netlink,
        [&] {
            Message message(RTM_GETROUTE, kDump, selector);
            message.put(RTA_OIF, ifindex); // the kernel filters
            return message;
        },
        [&](nlmsghdr *message) -> std::optional<Prefix> {
            const auto *header = static_cast<rtmsg *>(nlmsg_data(message));
            const Attributes<RTA_MAX> attributes(message, sizeof *header);
            if ((header->rtm_flags & RTM_F_CLONED) != 0 || !has_path_to(next_hop, ifindex, attributes))
                return std::nullopt;
            return Prefix{attributes.addr(RTA_DST).value_or(any_addr(is_ipv4(next_hop))), header->rtm_dst_len};
        },
        "listing the routes of interface " + std::to_string(ifindex)));
    return found.empty() ? std::nullopt : std::optional(found.front());
}

} // namespace podlane::net
