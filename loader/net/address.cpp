// SPDX-License-Identifier: MIT
#include "loader/net/address.hpp"

#include "loader/net/message.hpp"

#include <linux/if_addr.h>

#include <cerrno>

namespace podlane::net {
namespace {

static_assert(kOptimistic == IFA_F_OPTIMISTIC && kDadFailed == IFA_F_DADFAILED && kTentative == IFA_F_TENTATIVE);
static_assert(kNoDad == IFA_F_NODAD && kPermanent == IFA_F_PERMANENT && kNoPrefixRoute == IFA_F_NOPREFIXROUTE);
static_assert(kScopeGlobal == RT_SCOPE_UNIVERSE && kScopeLink == RT_SCOPE_LINK);

std::optional<Address> parse_address(nlmsghdr *message, std::uint32_t ifindex) {
    const auto *header = static_cast<ifaddrmsg *>(nlmsg_data(message));
    const Attributes<IFA_MAX> attributes(message, sizeof *header);
    // IFA_ADDRESS is the other end's if there is one; IPv6 sends IFA_LOCAL only then.
    auto addr = attributes.addr(IFA_LOCAL);
    if (!addr)
        addr = attributes.addr(IFA_ADDRESS);
    if (!addr || header->ifa_index != ifindex)
        return std::nullopt;
    return Address{{*addr, header->ifa_prefixlen},
                   attributes.get<std::uint32_t>(IFA_FLAGS).value_or(header->ifa_flags),
                   header->ifa_scope};
}

} // namespace

Result<bool> add_address(Netlink &netlink, std::uint32_t ifindex, const Address &address) {
    ifaddrmsg header{};
    header.ifa_family = number(family_of(address.prefix.addr));
    header.ifa_prefixlen = address.prefix.length;
    header.ifa_index = ifindex;
    header.ifa_scope = address.scope;
    Message message(RTM_NEWADDR, kChange | NLM_F_CREATE | NLM_F_EXCL, header);
    message.put(IFA_LOCAL, address.prefix.addr).put(IFA_ADDRESS, address.prefix.addr).put(IFA_FLAGS, address.flags);
    auto added = changed(request(netlink, std::move(message)), {EEXIST},
                         "adding address " + to_string(address.prefix) + " on interface " + std::to_string(ifindex));
    if (added || added.error().system_errno != EOPNOTSUPP || is_ipv4(address.prefix.addr))
        return added;
    Error error = std::move(added).error();
    error.hint = "this kernel was booted without IPv6 (ipv6.disable=1): have the IPAM plugin give IPv4 addresses alone";
    return error;
}

Result<bool> remove_address(Netlink &netlink, std::uint32_t ifindex, const Address &address) {
    ifaddrmsg header{};
    header.ifa_family = number(family_of(address.prefix.addr));
    header.ifa_prefixlen = address.prefix.length;
    header.ifa_index = ifindex;
    Message message(RTM_DELADDR, kChange, header);
    message.put(IFA_LOCAL, address.prefix.addr);
    return changed(request(netlink, std::move(message)), {EADDRNOTAVAIL, ENODEV},
                   "removing address " + to_string(address.prefix) + " from interface " + std::to_string(ifindex));
}

std::string unusable_because(const Address &present, bool may_be_tentative) {
    if (is_ipv4(present.prefix.addr))
        return "";
    if ((present.flags & kDadFailed) != 0)
        return "another interface on its link has it (dadfailed)";
    const bool is_tentative = (present.flags & (kTentative | kOptimistic)) == kTentative;
    return is_tentative && !may_be_tentative ? "duplicate address detection has not ended (tentative)" : "";
}

Result<std::vector<Address>> list_addresses(Netlink &netlink, std::uint32_t ifindex) {
    std::vector<Address> both;
    for (const Family family : {Family::ipv4, Family::ipv6}) {
        ifaddrmsg header{};
        header.ifa_family = number(family);
        header.ifa_index = ifindex;
        auto found = TRY(dump<Address>(
            netlink, [&] { return Message(RTM_GETADDR, kDump, header); },
            [&](nlmsghdr *message) { return parse_address(message, ifindex); },
            "listing the addresses of interface " + std::to_string(ifindex)));
        both.insert(both.end(), found.begin(), found.end());
    }
    return both;
}

} // namespace podlane::net
