// SPDX-License-Identifier: MIT
#include "loader/net/ipsec.hpp"

#include "loader/net/message.hpp"

#include <linux/xfrm.h>

namespace podlane::net {
namespace {

// A kernel without IPsec, or without such a request, answers nothing.
template <typename Header>
Result<void> query(int type, const Header &header, const OnMessage &on_answer, std::string_view doing) {
    auto netlink = Netlink::open_ipsec();
    if (!netlink && netlink.error().system_errno == EPROTONOSUPPORT)
        return {};
    if (!netlink)
        return netlink.error();
    const Outcome outcome = request(*netlink, Message(type, kChange, header), on_answer);
    if (!outcome.ok() && !outcome.is({EINVAL})) // EINVAL: before Linux 5.15
        return outcome.as_error(doing);
    return {};
}

} // namespace

Result<std::uint32_t> count_ipsec_policies() {
    std::uint32_t count = 0;
    const std::uint32_t flags = 0;
    TRY(query(
        XFRM_MSG_GETSPDINFO, flags,
        [&](nlmsghdr *answer) {
            const Attributes<XFRMA_SPD_MAX> attributes(answer, sizeof flags);
            if (const auto info = attributes.get<xfrmu_spdinfo>(XFRMA_SPD_INFO))
                count = info->incnt + info->outcnt + info->fwdcnt;
        },
        "counting the policies of IPsec"));
    return count;
}

Result<bool> has_ipsec_policies() {
    bool blocks = false;
    TRY(query(
        XFRM_MSG_GETDEFAULT, xfrm_userpolicy_default{},
        [&](nlmsghdr *answer) {
            if (nlmsg_datalen(answer) < static_cast<int>(sizeof(xfrm_userpolicy_default)))
                return;
            const auto *policy = static_cast<xfrm_userpolicy_default *>(nlmsg_data(answer));
            blocks = policy->in == XFRM_USERPOLICY_BLOCK || policy->out == XFRM_USERPOLICY_BLOCK ||
                     policy->fwd == XFRM_USERPOLICY_BLOCK;
        },
        "reading what IPsec does by default"));
    return blocks || TRY(count_ipsec_policies()) != 0;
}

} // namespace podlane::net
