// SPDX-License-Identifier: MIT
#include "maps/words.hpp"

#include "maps/abi/endpoint.h"
#include "maps/abi/interface.h"

#include <array>
#include <limits>

namespace podlane {
namespace {

struct FlagWord {
    std::uint32_t flag;
    std::string_view text;
};

constexpr auto kFlags = std::to_array<FlagWord>({
    {INTERFACE_FAST_LOCAL, "fast-local"},
    {INTERFACE_FAST_UPLINK, "fast-uplink"},
    {INTERFACE_FIRST_DIRECT, "first-direct"},
    {INTERFACE_ANTI_SPOOF, "anti-spoof"},
    {INTERFACE_ALLOWED_SOURCES, "allowed-sources"},
    {INTERFACE_GATEWAY, "gateway"},
    {INTERFACE_MORE_ADDRESSES, "more-addresses"},
    {INTERFACE_PEERS, "siblings"},
    {INTERFACE_EGRESS_ROUTE, "own-way"},
    {INTERFACE_APART, "apart"},
    {INTERFACE_NO_DEFAULT_IPV4, "no-default-ipv4"},
    {INTERFACE_NO_DEFAULT_IPV6, "no-default-ipv6"},
    {INTERFACE_ROUTED, "routed"},
    {INTERFACE_MAC_LEARNED, "mac-learned"},
    {INTERFACE_ISOLATED_GROUP, "isolated-by-group"},
    {INTERFACE_ISOLATED_NETWORK, "isolated-by-network"},
    {INTERFACE_POD_RULES, "pod-rules"},
    {INTERFACE_BRIDGED, "bridged"},
    {INTERFACE_ETHER_LLC, "ether-llc"},
    {INTERFACE_ETHER_LLDP, "ether-lldp"},
    {INTERFACE_ETHER_MPLS, "ether-mpls"},
    {INTERFACE_ETHER_PPPOE, "ether-pppoe"},
    {INTERFACE_ETHER_VLAN, "ether-vlan"},
    {INTERFACE_ETHER_ANY, "ether-any"},
    {INTERFACE_LIMIT_INGRESS, "limit-ingress"},
    {INTERFACE_LIMIT_EGRESS, "limit-egress"},
    {INTERFACE_LIMIT_UNPACED_INGRESS, "limit-unpaced-ingress"},
    {INTERFACE_LIMIT_UNPACED_EGRESS, "limit-unpaced-egress"},
    {INTERFACE_LIMIT_EDT, "limit-timed"},
    {INTERFACE_LIMIT_NO_EDT, "limit-untimed"},
    {INTERFACE_LIMIT_EXEMPT, "limit-exempt"},
    {INTERFACE_LIMIT_GROUP, "limit-group"},
});

} // namespace

std::vector<std::string> flag_words(std::uint32_t interface_flags) {
    static_assert(kFlags.size() == std::numeric_limits<std::uint32_t>::digits, "each bit has a word");
    std::vector<std::string> words;
    for (const FlagWord &flag : kFlags)
        if ((interface_flags & flag.flag) != 0)
            words.emplace_back(flag.text);
    return words;
}

std::string_view mode_name(std::uint8_t endpoint_mode) {
    switch (endpoint_mode) {
    case ENDPOINT_MAIN:
        return "main";
    case ENDPOINT_AFTER_IPAM:
        return "after-ipam";
    case ENDPOINT_AFTER_MAIN:
        return "after-main";
    default:
        return {};
    }
}

std::string_view attach_name(std::uint8_t endpoint_attach) {
    return endpoint_attach == ENDPOINT_TCX ? "tcx" : endpoint_attach == ENDPOINT_CLSACT ? "clsact" : "";
}

} // namespace podlane
