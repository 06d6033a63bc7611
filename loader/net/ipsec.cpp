// SPDX-License-Identifier: MIT
#include "loader/net/ipsec.hpp"

#include "loader/net/message.hpp"

#include <linux/xfrm.h>

namespace podlane::net {

Result<std::uint32_t> count_ipsec_policies() {
    auto netlink = Netlink::open_ipsec();
    if (!netlink && netlink.error().system_errno == EPROTONOSUPPORT)
        return std::uint32_t{0};
    if (!netlink)
        return netlink.error();
    std::uint32_t count = 0;
    const std::uint32_t flags = 0;
    const Outcome outcome = request(*netlink, Message(XFRM_MSG_GETSPDINFO, kChange, flags), [&](nlmsghdr *answer) {
        const Attributes<XFRMA_SPD_MAX> attributes(answer, sizeof flags);
        if (const auto info = attributes.get<xfrmu_spdinfo>(XFRMA_SPD_INFO))
            count = info->incnt + info->outcnt + info->fwdcnt;
    });
    if (!outcome.ok())
        return outcome.as_error("counting the policies of IPsec");
    return count;
}

} // namespace podlane::net
