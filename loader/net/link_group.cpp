// SPDX-License-Identifier: MIT
#include "loader/net/link_group.hpp"

#include "loader/net/message.hpp"

#include <linux/if_link.h>
#include <sys/random.h>

#include <utility>

namespace podlane::net {
namespace {

// Nobody else's: people number groups from 1 on.
Result<std::uint32_t> unused_group() {
    constexpr std::uint32_t kFirst = 1U << 24U;
    std::uint32_t group = 0;
    if (getrandom(&group, sizeof group, 0) != sizeof group)
        return system_error(ErrorCode::netlink, "choosing a link group", errno);
    return group | kFirst;
}

} // namespace

Result<void> remove_links(Netlink &netlink, std::span<const std::uint32_t> ifindexes) {
    const std::uint32_t group = TRY(unused_group());
    bool any = false;
    for (const std::uint32_t ifindex : ifindexes) {
        Message join(RTM_SETLINK, kChange, link_header(ifindex));
        join.put(IFLA_GROUP, group);
        const bool joined =
            TRY(changed(request(netlink, std::move(join)), {ENODEV}, "removing interface " + std::to_string(ifindex)));
        any = any || joined;
    }
    if (!any)
        return {};
    Message remove(RTM_DELLINK, kChange, link_header(0));
    remove.put(IFLA_GROUP, group);
    TRY(changed(request(netlink, std::move(remove)), {ENODEV},
                "removing " + std::to_string(ifindexes.size()) + " interfaces"));
    return {};
}

} // namespace podlane::net
