// SPDX-License-Identifier: MIT
#include "loader/net/link.hpp"

#include "loader/net/message.hpp"

#include <linux/if_link.h>
#include <linux/ipv6.h>
#include <linux/net_namespace.h>
#include <linux/veth.h>
#include <net/if.h>

#include <array>
#include <cerrno>

namespace podlane::net {
namespace {

bool has_ipv6_off(const Attributes<IFLA_MAX> &attributes) {
    const Attributes<AF_MAX> families(attributes.at(IFLA_AF_SPEC));
    const auto settings = Attributes<IFLA_INET6_MAX>(families.at(AF_INET6))
                              .get<std::array<std::int32_t, DEVCONF_DISABLE_IPV6 + 1>>(IFLA_INET6_CONF);
    return settings && settings->back() != 0;
}

Link parse_link(nlmsghdr *message) {
    const auto *header = static_cast<ifinfomsg *>(nlmsg_data(message));
    const Attributes<IFLA_MAX> attributes(message, sizeof *header);
    Link link;
    link.ifindex = static_cast<std::uint32_t>(header->ifi_index);
    link.name = attributes.text(IFLA_IFNAME);
    link.alias = attributes.text(IFLA_IFALIAS);
    link.kind = Attributes<IFLA_INFO_MAX>(attributes.at(IFLA_LINKINFO)).text(IFLA_INFO_KIND);
    link.qdisc = attributes.text(IFLA_QDISC);
    link.mac = attributes.get<Mac>(IFLA_ADDRESS).value_or(Mac{});
    link.mtu = attributes.get<std::uint32_t>(IFLA_MTU).value_or(0);
    link.flags = header->ifi_flags;
    link.type = header->ifi_type;
    link.state = attributes.get<std::uint8_t>(IFLA_OPERSTATE).value_or(0);
    link.up = (header->ifi_flags & IFF_UP) != 0;
    link.ipv6_off = has_ipv6_off(attributes);
    link.master = attributes.get<std::uint32_t>(IFLA_MASTER);
    const auto peer = attributes.get<std::uint32_t>(IFLA_LINK);
    if (link.kind == "veth" && peer && *peer != 0) {
        link.peer_ifindex = peer;
        link.peer_nsid = attributes.get<std::int32_t>(IFLA_LINK_NETNSID);
    }
    return link;
}

Result<std::optional<Link>> find(Netlink &netlink, Message message, const std::string &doing) {
    message.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
    std::optional<Link> found;
    const Outcome outcome = request(netlink, std::move(message), [&](nlmsghdr *answer) { found = parse_link(answer); });
    if (!outcome.ok() && !outcome.is({ENODEV}))
        return outcome.as_error(doing);
    return found;
}

// The kernel says "exists" for either end: finds out which.
Error which_end_exists(Netlink &host, const VethSpec &spec, const Outcome &outcome) {
    const auto there = find_link(host, spec.host_ifname);
    const bool on_host = there && there->has_value();
    Error error = outcome.as_error(
        "creating " + (on_host ? "the host-side veth " + spec.host_ifname : "the container's end " + spec.pod_ifname));
    error.code = ErrorCode::already_exists;
    error.hint = on_host ? "remove or rename the interface that has this name, or set \"hostInterfacePrefix\""
                         : "remove or rename the interface of the container that has this name";
    return error;
}

Message veth_message(const VethSpec &spec) {
    const std::optional<std::uint32_t> mtu = spec.mtu ? std::optional(spec.mtu) : std::nullopt;
    Message message(RTM_NEWLINK, kChange | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO, link_header(0));
    message.put(IFLA_IFNAME, spec.host_ifname).put(IFLA_ADDRESS, spec.host_mac).put(IFLA_MTU, mtu);
    message.nest(IFLA_LINKINFO, [&] {
        message.put(IFLA_INFO_KIND, std::string("veth")).nest(IFLA_INFO_DATA, [&] {
            message.nest(VETH_INFO_PEER, [&] {
                message.append(link_header(0)).put(IFLA_NET_NS_FD, spec.pod.fd());
                message.put(IFLA_IFNAME, spec.pod_ifname).put(IFLA_ADDRESS, spec.pod_mac).put(IFLA_MTU, mtu);
            });
        });
    });
    return message;
}

// Removes the link if it was created although no answer said so. Ours have no alias yet.
Error roll_back_veth(Netlink &host, const VethSpec &spec, Error cause) {
    const auto link = find_link(host, spec.host_ifname);
    Result<void> removed;
    if (!link)
        removed = link.error();
    else if (*link && (*link)->kind == "veth" && (*link)->mac == spec.host_mac && (*link)->alias.empty())
        if (auto gone = remove_link(host, (*link)->ifindex); !gone)
            removed = std::move(gone).error();
    if (!removed)
        cause.message += "; and removing " + spec.host_ifname + ": " + removed.error().message;
    return cause;
}

Message addr_gen_mode_message(std::uint32_t ifindex, AddrGenMode mode) {
    Message message(RTM_SETLINK, kChange, link_header(ifindex));
    message.nest(IFLA_AF_SPEC, [&] {
        message.nest(AF_INET6, [&] { message.put(IFLA_INET6_ADDR_GEN_MODE, static_cast<std::uint8_t>(mode)); });
    });
    return message;
}

Message change_message(std::uint32_t ifindex, const LinkChange &change) {
    ifinfomsg header = link_header(ifindex);
    if (change.up) {
        header.ifi_change = IFF_UP;
        header.ifi_flags = *change.up ? IFF_UP : 0;
    }
    Message message(RTM_SETLINK, kChange, header);
    message.put(IFLA_MTU, change.mtu).put(IFLA_ADDRESS, change.mac).put(IFLA_MASTER, change.master);
    if (change.alias)
        message.put(IFLA_IFALIAS, *change.alias);
    return message;
}

} // namespace

Result<std::optional<Link>> find_link(Netlink &netlink, const std::string &name) {
    if (name.empty() || name.size() >= IFNAMSIZ) // the kernel calls it a malformed request
        return std::optional<Link>{};
    Message message(RTM_GETLINK, kChange, link_header(0));
    message.put(IFLA_IFNAME, name);
    return find(netlink, std::move(message), "looking for interface " + name);
}

Result<std::optional<Link>> find_link(Netlink &netlink, std::uint32_t ifindex) {
    // 0 is that of an endpoint without a host-side veth; like one of no interface, it is an invalid request to the
    // kernel.
    if (ifindex == 0 || ifindex > INT32_MAX)
        return std::optional<Link>{};
    return find(netlink, Message(RTM_GETLINK, kChange, link_header(ifindex)),
                "looking up interface " + std::to_string(ifindex));
}

Result<std::vector<Link>> list_links(Netlink &netlink) {
    return dump<Link>(
        netlink,
        [] {
            Message message(RTM_GETLINK, kDump, link_header(0));
            message.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
            return message;
        },
        [](nlmsghdr *answer) { return std::optional(parse_link(answer)); }, "listing the interfaces");
}

Result<bool> has_peer_in(Netlink &netlink, const Link &veth, const Namespace &there) {
    if (!veth.peer_ifindex || !veth.peer_nsid)
        return veth.peer_ifindex && there == TRY(Namespace::current());
    if (*veth.peer_nsid < 0)
        return Error{ErrorCode::try_again_later,
                     "the kernel has no number for the namespace of the other end of " + veth.name};
    Message message(RTM_GETNSID, kChange, rtgenmsg{AF_UNSPEC});
    message.put(NETNSA_FD, there.fd());
    std::optional<std::int32_t> number;
    const Outcome outcome = request(netlink, std::move(message), [&](nlmsghdr *answer) {
        number = Attributes<NETNSA_MAX>(answer, sizeof(rtgenmsg)).get<std::int32_t>(NETNSA_NSID);
    });
    if (!outcome.ok())
        return outcome.as_error("looking for the number of a network namespace");
    return number == veth.peer_nsid; // -1: it has none
}

Result<std::string> link_name(std::uint32_t ifindex) {
    std::array<char, IF_NAMESIZE> name{};
    if (if_indextoname(ifindex, name.data()) != nullptr)
        return std::string(name.data());
    return errno == ENXIO
               ? Result<std::string>(std::string{})
               : system_error(ErrorCode::io_failure, "looking for interface " + std::to_string(ifindex), errno);
}

Result<Veth> create_veth(Netlink &host, const VethSpec &spec) {
    const std::string doing = "creating " + spec.host_ifname + " with the container's end " + spec.pod_ifname;
    std::optional<Link> link;
    const Outcome outcome = request(host, veth_message(spec), [&](nlmsghdr *answer) { link = parse_link(answer); });
    if (outcome.is({EEXIST}))
        return which_end_exists(host, spec, outcome);
    if (!outcome.ok())
        return outcome.answered ? outcome.as_error(doing) : roll_back_veth(host, spec, outcome.as_error(doing));
    if (!link) { // before Linux 6.2 the echo of a new link does not reach the requester
        auto found = find_link(host, spec.host_ifname);
        if (!found)
            return roll_back_veth(host, spec, std::move(found).error());
        link = *std::move(found);
    }
    if (!link || !link->peer_ifindex)
        return Error{ErrorCode::missing, doing + ": it disappeared at once"};
    const std::uint32_t pod_ifindex = *link->peer_ifindex;
    return Veth{std::move(*link), pod_ifindex};
}

Result<void> set_link(Netlink &netlink, std::uint32_t ifindex, const LinkChange &change) {
    // The kernel takes IFLA_AF_SPEC after IFF_UP, when fe80:: is there already: the mode needs a message before. So
    // does the alias: of a link that is up it is a change that makes the kernel look at all IPv6 routes once more.
    std::vector<Message> batch;
    if (change.addr_gen_mode)
        batch.push_back(addr_gen_mode_message(ifindex, *change.addr_gen_mode));
    LinkChange last = change;
    if (change.up == true && change.alias) {
        batch.push_back(change_message(ifindex, {.alias = change.alias}));
        last.alias.reset();
    }
    batch.push_back(change_message(ifindex, last));
    const auto outcomes = request_all(netlink, batch);
    const std::string doing = "setting interface " + std::to_string(ifindex);
    for (std::size_t i = outcomes.size(); i-- > (change.addr_gen_mode ? 1U : 0U);)
        if (!outcomes[i].ok())
            return outcomes[i].as_error(doing);
    if (!outcomes.front().ok() && !outcomes.front().is({EAFNOSUPPORT})) // IPv6 is off on this node or this link
        return outcomes.front().as_error(doing + " to IPv6 address generation mode " +
                                         std::to_string(static_cast<unsigned>(*change.addr_gen_mode)));
    return {};
}

Result<void> rename_link(Netlink &netlink, const Link &link, const std::string &name) {
    const auto rename = [&] {
        Message message(RTM_SETLINK, kChange, link_header(link.ifindex));
        message.put(IFLA_IFNAME, name);
        return request(netlink, std::move(message));
    };
    Outcome outcome = rename();
    if (outcome.is({EBUSY})) {
        TRY(set_link(netlink, link.ifindex, {.up = false}));
        outcome = rename();
        TRY(set_link(netlink, link.ifindex, {.up = link.up}));
    }
    return outcome.ok() ? Result<void>{} : outcome.as_error("renaming " + link.name + " to " + name);
}

Result<void> set_loopback_up(Netlink &netlink) {
    LinkChange up;
    up.up = true;
    return set_link(netlink, kLoopbackIfindex, up);
}

Result<bool> remove_link(Netlink &netlink, std::uint32_t ifindex) {
    return changed(request(netlink, Message(RTM_DELLINK, kChange, link_header(ifindex))), {ENODEV},
                   "removing interface " + std::to_string(ifindex));
}

} // namespace podlane::net
