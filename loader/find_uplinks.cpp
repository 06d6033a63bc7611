// SPDX-License-Identifier: MIT
#include "loader/uplink.hpp"

#include "loader/net/link.hpp"
#include "loader/net/route.hpp"

#include <fnmatch.h>
#include <net/if_arp.h>

#include <algorithm>

namespace podlane {
namespace {

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

enum class LinkKind { host_veth, loopback, headerless, ethernet };

Result<LinkKind> kind_of(const net::Link &link, const Interfaces &host_veths) {
    if (TRY(host_veths.find(link.ifindex)))
        return LinkKind::host_veth;
    return link.type == ARPHRD_ETHER      ? LinkKind::ethernet
           : link.type == ARPHRD_LOOPBACK ? LinkKind::loopback
                                          : LinkKind::headerless;
}

Error no_uplink(const std::string &name, LinkKind kind) {
    if (kind == LinkKind::headerless)
        return {ErrorCode::invalid_network_config,
                "uplink " + name + " has no Ethernet header (it is a tunnel or a tun device)",
                "name the interface below it in \"uplinks\": traffic through the tunnel goes through the host stack"};
    return {ErrorCode::invalid_network_config,
            name + (kind == LinkKind::loopback ? " is the loopback interface" : " is a pod's host-side veth") +
                ", not an uplink",
            "name an Ethernet interface of the node in \"uplinks\", or leave it out to use the default routes'"};
}

// `named`: the configuration spells its name, so that an interface that can never be an uplink is a mistake.
Result<void> add(const net::Link &link, bool named, const Interfaces &host_veths, FoundUplinks &found) {
    const LinkKind kind = TRY(kind_of(link, host_veths));
    if (kind == LinkKind::ethernet)
        found.ifindexes.push_back(link.ifindex);
    else if (named && !found.refused)
        found.refused = no_uplink(link.name, kind);
    if (kind == LinkKind::headerless)
        found.notes.push_back(link.name + " has no Ethernet header (it is a tunnel or a tun device): traffic through "
                                          "it goes through the host stack");
    return {};
}

// An interface that is missing now may appear later.
Result<void> add_named(net::Netlink &host, const std::string &name, const Interfaces &host_veths, FoundUplinks &found) {
    const auto link = TRY(net::find_link(host, name));
    if (link)
        return add(*link, true, host_veths, found);
    found.notes.push_back("uplinks: there is no interface " + name + "; once there is: podlanectl uplink sync");
    return {};
}

Result<void> add_matching(net::Netlink &host, const std::string &pattern, const Interfaces &host_veths,
                          FoundUplinks &found) {
    for (const net::Link &link : TRY(net::list_links(host)))
        if (fnmatch(pattern.c_str(), link.name.c_str(), 0) == 0)
            TRY(add(link, false, host_veths, found));
    return {};
}

Result<void> add_default_routes(net::Netlink &host, const Interfaces &host_veths, FoundUplinks &found) {
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        if (const auto route = TRY(net::default_route(host, family)))
            for (const std::uint32_t ifindex : route->links)
                if (const auto link = TRY(net::find_link(host, ifindex)))
                    TRY(add(*link, false, host_veths, found));
    return {};
}

} // namespace

Result<bool> can_be_uplink(std::uint32_t ifindex, const Interfaces &host_veths) {
    net::Netlink host = TRY(net::Netlink::open());
    const auto link = TRY(net::find_link(host, ifindex));
    return link && TRY(kind_of(*link, host_veths)) == LinkKind::ethernet;
}

Result<FoundUplinks> find_uplinks(std::span<const std::string> patterns, const Interfaces &host_veths) {
    net::Netlink host = TRY(net::Netlink::open());
    FoundUplinks found;
    if (patterns.empty())
        TRY(add_default_routes(host, host_veths, found));
    for (const std::string &pattern : patterns)
        TRY(is_pattern(pattern) ? add_matching(host, pattern, host_veths, found)
                                : add_named(host, pattern, host_veths, found));
    std::ranges::sort(found.ifindexes);
    found.ifindexes.erase(std::unique(found.ifindexes.begin(), found.ifindexes.end()), found.ifindexes.end());
    return found;
}

} // namespace podlane
