// SPDX-License-Identifier: MIT
#include "plugin/cni/pod_ranges.hpp"

#include "maps/ip.hpp"
#include "plugin/cni/types.hpp"

#include <arpa/inet.h>

#include <array>

namespace podlane::cni {
namespace {

constexpr const char *kOfIpv4 = "usePodCidr";
constexpr const char *kOfIpv6 = "usePodCidrIPv6";

Error wrong(std::string sentence) { return {ErrorCode::invalid_network_config, std::move(sentence)}; }

bool is_pod_range(const Prefix &prefix) {
    const ip_addr &addr = prefix.addr;
    constexpr std::uint8_t kWidest = 4;
    const bool ipv4 = is_ipv4(addr);
    const std::uint32_t first = ntohl(ipv4 ? addr.word[3] : addr.word[0]) >> 24U;
    const bool is_special =
        is_link_local(addr) || (ipv4 ? first == 0 || first == 127 || first >= 224 : first >= 0xfe || first == 0);
    return !is_special && prefix.length >= kWidest && !is_host_prefix(prefix) && prefix == masked(prefix);
}

std::uint32_t family_of(const json::Value &range) {
    const auto subnet = range.find("subnet");
    const auto *const text = subnet == range.end() ? nullptr : subnet->get_ptr<const std::string *>();
    if (text == nullptr)
        return 0;
    if (json::equal_any_case(*text, kOfIpv4))
        return kIpv4;
    return json::equal_any_case(*text, kOfIpv6) ? kIpv6 : 0;
}

// Each object of a part of host-local's configuration that has a subnet, or may have one.
template <typename Object, typename Do> void for_ranges_in(Object &part, const Do &act) {
    if (!part.is_object())
        return;
    act(part);
    const auto ranges = part.find("ranges");
    if (ranges == part.end() || !ranges->is_array())
        return;
    for (auto &set : *ranges)
        if (set.is_array())
            for (auto &range : set)
                if (range.is_object())
                    act(range);
}

// Of "ipam", and of the pools that are merged into it.
template <typename Object, typename Do> void for_ranges(Object &config, const Do &act) {
    const auto ipam = config.find("ipam");
    if (ipam == config.end() || !ipam->is_object() || ipam->value("type", json::Value()) != "host-local")
        return;
    for_ranges_in(*ipam, act);
    if (const auto pools = config.find("pools"); pools != config.end() && pools->is_object())
        for (auto &pool : *pools)
            for_ranges_in(pool, act);
}

} // namespace

Result<std::vector<std::string>> checked_ranges(const std::vector<std::pair<std::string, std::string>> &named,
                                                const std::string &what) {
    std::vector<std::string> ranges;
    std::array<bool, 2> seen{};
    for (const auto &[key, text] : named) {
        const auto prefix = parse_prefix(text);
        if (!prefix || text.find('/') == std::string::npos || !is_pod_range(*prefix))
            return wrong(what + ": " + key + " is " + json::quote(text) + ", expected a range such as 198.18.1.0/24");
        if (std::exchange(seen.at(is_ipv4(prefix->addr) ? 1 : 0), true))
            return wrong(what + ": " + key + " is a second range of its family");
        ranges.push_back(to_string(*prefix));
    }
    return ranges;
}

Result<std::vector<std::string>> ranges_of_node(const json::Value &node, const std::string &what) {
    const json::Node spec = json::Node(&node, {}).at("spec");
    TRY(spec.must_be_object());
    std::vector<std::pair<std::string, std::string>> named;
    if (const json::Node many = spec.at("podCIDRs"); many.present())
        for (const json::Node &one : TRY(many.elements("[\"198.18.1.0/24\"]")))
            named.emplace_back(one.path(), TRY(one.text()));
    else if (const json::Node single = spec.at("podCIDR"); single.present())
        named.emplace_back(single.path(), TRY(single.text()));
    if (named.empty())
        return wrong(what + " has no spec.podCIDRs: the node has no range for pods");
    return checked_ranges(named, what);
}

Result<std::vector<std::string>> ranges_in(const json::Value &answer, const std::string &what) {
    std::vector<std::pair<std::string, std::string>> named;
    for (const json::Node &one : TRY(json::Node(&answer, {}).at("podCIDRs").elements()))
        named.emplace_back(one.path(), TRY(one.text()));
    return checked_ranges(named, what);
}

std::string kept_ranges_text(const KeptRanges &kept) {
    return json::print(
        json::Value{{"question", kept.question}, {"askedNs", kept.queried_ns}, {"podCIDRs", kept.ranges}});
}

Result<KeptRanges> parse_kept_ranges(std::string_view text, const std::string &what) {
    const json::Value document = TRY(json::parse_object(text, what));
    const json::Node root(&document, {});
    KeptRanges kept;
    kept.question = TRY(root.at("question").text());
    kept.ranges = TRY(ranges_in(document, what));
    kept.queried_ns = TRY(root.at("askedNs").number());
    return kept.ranges.empty() ? wrong(what + " has no range") : Result<KeptRanges>(std::move(kept));
}

std::uint32_t families_of_pod_ranges(const json::Value &config) {
    std::uint32_t families = 0;
    for_ranges(config, [&](const json::Value &range) { families |= family_of(range); });
    return families;
}

Result<std::string> with_pod_ranges(std::string_view config, const std::vector<std::string> &ranges) {
    json::Value document = TRY(json::parse_object(config, "the network configuration"));
    std::uint32_t missing = families_of_pod_ranges(document);
    for (const std::string &text : ranges) {
        const auto prefix = parse_prefix(text);
        const std::uint32_t family = prefix && is_ipv4(prefix->addr) ? kIpv4 : kIpv6;
        missing &= ~family;
        for_ranges(document, [&](json::Value &range) {
            if (family_of(range) == family)
                range["subnet"] = text;
        });
    }
    if (missing == 0)
        return json::print(document);
    const bool lacks_ipv4 = (missing & kIpv4) != 0;
    Error error = wrong(std::string("the node has no ") + (lacks_ipv4 ? "IPv4" : "IPv6") +
                        " range for pods, and \"ipam\" requests it by \"" + (lacks_ipv4 ? kOfIpv4 : kOfIpv6) + "\"");
    error.hint = "remove it, or have kube-controller-manager assign the node one of that family";
    return error;
}

Result<std::string> with_any_ranges(std::string_view config) {
    json::Value document = TRY(json::parse_object(config, "the network configuration"));
    for_ranges(document, [](json::Value &range) {
        const std::uint32_t family = family_of(range);
        if (family == 0)
            return;
        range["subnet"] = family == kIpv4 ? "0.0.0.0/30" : "::/126"; // no other range overlaps it
        for (const char *within : {"rangeStart", "rangeEnd", "gateway"})
            range.erase(within);
    });
    return json::print(document);
}

} // namespace podlane::cni
