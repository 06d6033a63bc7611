// SPDX-License-Identifier: MIT
#include "loader/net/neighbour.hpp"

#include "loader/net/message.hpp"

#include <linux/neighbour.h>

namespace podlane::net {
namespace {

ndmsg neighbour_header(std::uint32_t ifindex, Family family) {
    ndmsg header{};
    header.ndm_family = number(family);
    header.ndm_ifindex = static_cast<std::int32_t>(ifindex);
    return header;
}

std::string sentence(const char *verb, const ip_addr &addr, std::uint32_t ifindex) {
    return std::string(verb) + " neighbour " + to_string(addr) + " on interface " + std::to_string(ifindex);
}

std::optional<Neighbour> parse_neighbour(nlmsghdr *message, std::uint32_t ifindex) {
    const auto *header = static_cast<ndmsg *>(nlmsg_data(message));
    const Attributes<NDA_MAX> attributes(message, sizeof *header);
    const auto addr = attributes.addr(NDA_DST);
    // NUD_NOARP entries are the kernel's own note that a multicast or loopback address needs no neighbour.
    if (!addr || header->ndm_ifindex != static_cast<std::int32_t>(ifindex) || header->ndm_state == NUD_NOARP)
        return std::nullopt;
    return Neighbour{*addr, attributes.get<Mac>(NDA_LLADDR).value_or(Mac{}), (header->ndm_state & NUD_PERMANENT) != 0};
}

// Of the entries that Podlane adds (`ip -6 neigh show proxy` prints it); a number that iproute2 has no name for.
constexpr std::uint8_t kProxyProtocol = 112;

Message proxy_message(int type, int flags, std::uint32_t ifindex, const ip_addr &addr) {
    ndmsg header = neighbour_header(ifindex, family_of(addr));
    header.ndm_flags = NTF_PROXY;
    Message message(type, flags, header);
    message.put(NDA_DST, addr);
    return message;
}

// The protocol of the entry, 0 if whoever added it named none.
Result<std::optional<std::uint8_t>> find_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr) {
    std::optional<std::uint8_t> found;
    const Outcome outcome =
        request(netlink, proxy_message(RTM_GETNEIGH, kChange, ifindex, addr), [&](nlmsghdr *answer) {
            found = Attributes<NDA_MAX>(answer, sizeof(ndmsg)).get<std::uint8_t>(NDA_PROTOCOL).value_or(0);
        });
    if (!outcome.ok() && !outcome.is({ENOENT, ENODEV}))
        return outcome.as_error(sentence("looking for a proxy for", addr, ifindex));
    return found;
}

} // namespace

Result<void> put_neighbour(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr, const Mac &mac) {
    ndmsg header = neighbour_header(ifindex, family_of(addr));
    header.ndm_state = NUD_PERMANENT;
    Message message(RTM_NEWNEIGH, kChange | NLM_F_CREATE | NLM_F_REPLACE, header);
    message.put(NDA_DST, addr).put(NDA_LLADDR, mac);
    if (const Outcome outcome = request(netlink, std::move(message)); !outcome.ok())
        return outcome.as_error(sentence("creating", addr, ifindex));
    return {};
}

Result<std::optional<Neighbour>> find_neighbour(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr) {
    Message message(RTM_GETNEIGH, kChange, neighbour_header(ifindex, family_of(addr)));
    message.put(NDA_DST, addr);
    std::optional<Neighbour> found;
    const Outcome outcome =
        request(netlink, std::move(message), [&](nlmsghdr *answer) { found = parse_neighbour(answer, ifindex); });
    if (!outcome.ok() && !outcome.is({ENOENT, ENODEV}))
        return outcome.as_error(sentence("looking for", addr, ifindex));
    return found;
}

Result<void> put_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr) {
    if (TRY(find_proxy(netlink, ifindex, addr)))
        return {};
    Message message = proxy_message(RTM_NEWNEIGH, kChange | NLM_F_CREATE, ifindex, addr);
    message.put(NDA_PROTOCOL, kProxyProtocol);
    if (const Outcome outcome = request(netlink, std::move(message)); !outcome.ok())
        return outcome.as_error(sentence("being a proxy for", addr, ifindex));
    return {};
}

Result<bool> remove_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr) {
    if (const auto found = TRY(find_proxy(netlink, ifindex, addr)); !found || *found != kProxyProtocol)
        return false;
    return changed(request(netlink, proxy_message(RTM_DELNEIGH, kChange, ifindex, addr)), {ENOENT, ENODEV},
                   sentence("being no proxy for", addr, ifindex));
}

Result<bool> has_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr) {
    return TRY(find_proxy(netlink, ifindex, addr)).has_value();
}

} // namespace podlane::net
