// SPDX-License-Identifier: MIT
#include "plugin/cni/egress_route.hpp"

#include "plugin/cni/unicast.hpp"

#include <algorithm>
#include <array>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::size_t kLongestLink = 15; // IFNAMSIZ without its NUL
constexpr std::uint32_t kLocalTable = 255;

Result<void> read_gateway(const Node &node, std::vector<ip_addr> &into) {
    const auto text = node.text();
    const auto addr = text ? parse_ip(*text) : Result<ip_addr>(node.wrong("an IP address"));
    if (!addr)
        return node.wrong("an IP address", addr.error().hint);
    if (!is_unicast(*addr))
        return node.wrong("the unicast address of a router");
    if (std::ranges::any_of(into, [&](const ip_addr &known) { return is_ipv4(known) == is_ipv4(*addr); }))
        return node.wrong("at most one address of each family");
    into.push_back(*addr);
    return {};
}

bool is_interface_name(std::string_view text) {
    const auto allowed = [](unsigned char c) { return c > ' ' && c < 127 && c != '/' && c != ':'; };
    return !text.empty() && text.size() <= kLongestLink && std::ranges::all_of(text, allowed);
}

Error wrong_name(const Node &node) {
    return node.wrong("the name of an interface, of at most 15 characters, such as \"eth0\"");
}

} // namespace

bool is_uplink_name(std::string_view text) {
    constexpr std::array<std::string_view, 4> kOfDirectories = {".", "..", "all", "default"}; // below net.ipv4.conf
    // The kernel would number a name with '%'.
    return is_interface_name(text) && text.find('%') == std::string_view::npos &&
           std::ranges::find(kOfDirectories, text) == kOfDirectories.end();
}

Result<void> read_uplink(const Node &node, std::string &into) {
    if (!node.present())
        return {};
    const auto text = node.text();
    if (!text || !is_interface_name(*text))
        return wrong_name(node);
    into = *text;
    if (into == "lo")
        return node.wrong("an interface that leads out of the node");
    return {};
}

Result<void> check_uplink(const Node &node) {
    return !node.present() || is_uplink_name(TRY(node.text())) ? Result<void>{} : wrong_name(node);
}

Result<void> read_gateways(const Node &node, std::vector<ip_addr> &into) {
    if (!node.present())
        return {};
    if (!node.value().is_array())
        return read_gateway(node, into);
    for (const Node &element : TRY(node.elements()))
        TRY(read_gateway(element, into));
    return {};
}

Result<void> read_table(const Node &node, std::optional<std::uint32_t> &into) {
    TRY(json::read(node, into));
    if (into && (*into == 0 || *into == kLocalTable))
        return node.wrong("the number of a routing table, and not 255, which is the local one");
    return {};
}

} // namespace podlane::cni
