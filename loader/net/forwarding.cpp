// SPDX-License-Identifier: MIT
#include "loader/net/forwarding.hpp"

#include "loader/net/message.hpp"

#include <linux/netconf.h>

namespace podlane::net {

Result<std::map<std::uint32_t, bool>> list_forwarding(Netlink &netlink, Family family) {
    using Entry = std::pair<std::uint32_t, bool>;
    const auto found = TRY(dump<Entry>(
        netlink,
        [&] {
            netconfmsg header{};
            header.ncm_family = number(family);
            return Message(RTM_GETNETCONF, kDump, header);
        },
        [](nlmsghdr *answer) -> std::optional<Entry> {
            const Attributes<NETCONFA_MAX> attributes(answer, sizeof(netconfmsg));
            const auto ifindex = attributes.get<std::int32_t>(NETCONFA_IFINDEX);
            const auto forwards = attributes.get<std::int32_t>(NETCONFA_FORWARDING);
            if (!ifindex || *ifindex <= 0 || !forwards) // negative: "all" and "default"
                return std::nullopt;
            return Entry{static_cast<std::uint32_t>(*ifindex), *forwards != 0};
        },
        "listing which interfaces forward"));
    return std::map<std::uint32_t, bool>(found.begin(), found.end());
}

} // namespace podlane::net
