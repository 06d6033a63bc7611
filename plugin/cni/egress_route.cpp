// SPDX-License-Identifier: MIT
#include "plugin/cni/egress_route.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::size_t kLongestName = 15; // IFNAMSIZ without its NUL
constexpr std::uint32_t kLocalTable = 255;

bool is_interface_name(std::string_view text) {
    const auto allowed = [](unsigned char c) { return c > ' ' && c < 127 && c != '/' && c != ':'; };
    return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, allowed);
}

Result<void> read_gateway(const Node &node, std::vector<ip_addr> &into) {
    const auto text = node.text();
    const auto addr = text ? parse_ip(*text) : Result<ip_addr>(node.wrong("an IP address"));
    if (!addr || is_none(*addr))
        return node.wrong("an IP address");
    if (std::ranges::any_of(into, [&](const ip_addr &known) { return is_ipv4(known) == is_ipv4(*addr); }))
        return node.wrong("at most one address of each family");
    into.push_back(*addr);
    return {};
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

} // namespace

Result<void> read_way(const Node &root, Config &config) {
    TRY(json::read(root.at("sourceRouting"), config.source_routing));
    const Node uplink = root.at("uplink");
    TRY(json::read(uplink, config.uplink));
    if (uplink.present() && !is_interface_name(config.uplink))
        return uplink.wrong("the name of an interface");
    TRY(read_gateways(root.at("gateway"), config.gateways));
    const Node table = root.at("table");
    TRY(json::read(table, config.table));
    if (config.table && (*config.table == 0 || *config.table == kLocalTable))
        return table.wrong("the number of a routing table, and not 255, which is the local one");
    return {};
}

} // namespace podlane::cni
