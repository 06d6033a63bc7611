// SPDX-License-Identifier: MIT
#include "plugin/cni/isolation.hpp"

#include "maps/printable.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/cni/words.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::size_t kMostPairs = 16;
constexpr std::size_t kMostPrefixes = 64;
constexpr std::string_view kPairs = R"(at most 16 pairs of groups, such as [["tenant-a", "namespace:kube-system"]])";

Result<std::string> read_group_name(const Node &node, std::string_view expected) {
    auto name = node.text();
    if (!name || !is_group_name(*name))
        return node.wrong(expected);
    return name;
}

Error of_two_groups(const Prefix &prefix, const std::string &one, const std::string &other) {
    return {ErrorCode::invalid_network_config,
            "groupCIDRs has " + to_string(prefix) + " twice, in " + json::quote(one) + " and in " + json::quote(other),
            "leave it in one of them: a prefix is of one group"};
}

} // namespace

bool is_group_name(std::string_view name) {
    constexpr std::size_t kLongestKind = 12; // "annotation:", and "="
    return !name.empty() && name.size() <= kLongestKind + kLongestLabelKey + kLongestLabelValue && is_printable(name);
}

Result<void> read_isolation(const Node &node, IsolateBy &into) {
    constexpr std::array<Word<IsolateBy>, 3> kWords{
        {{"none", IsolateBy::none}, {"network", IsolateBy::network}, {"group", IsolateBy::group}}};
    return read_word(node, kWords, into);
}

Result<void> read_allow(const Node &node, std::vector<std::pair<std::string, std::string>> &into) {
    if (!node.present())
        return {};
    for (const Node &element : TRY(node.elements(R"([["tenant-a", "tenant-b"]])"))) {
        const auto names = element.elements();
        if (!names || names->size() != 2)
            return element.wrong(kPairs);
        into.emplace_back(TRY(read_group_name(names->front(), kPairs)), TRY(read_group_name(names->back(), kPairs)));
    }
    return into.size() > kMostPairs ? Result<void>(node.wrong(kPairs)) : Result<void>{};
}

Result<void> read_admission(const Node &node, bool &into) {
    constexpr std::array<Word<bool>, 2> kWords{{{"allow", true}, {"deny", false}}};
    return read_word(node, kWords, into);
}

Result<void> read_egress(const Node &node, bool &into) {
    constexpr std::array<Word<bool>, 2> kWords{{{"allow", false}, {"cluster", true}}};
    return read_word(node, kWords, into);
}

Result<void> read_group_cidrs(const Node &node, std::vector<std::pair<Prefix, std::string>> &into) {
    constexpr std::string_view kExpected =
        R"(an object of groups and at most 64 prefixes, such as {"tenant-a": ["198.18.64.0/20"]})";
    if (!node.present())
        return {};
    TRY(node.must_be_object(kExpected));
    for (const auto &[group, prefixes] : node.value().items()) {
        std::vector<Prefix> all;
        TRY(read_prefixes(node.at(group), all));
        if (!is_group_name(group))
            return node.wrong(kExpected);
        for (const Prefix &prefix : all) {
            if (const auto other = std::ranges::find(into, masked(prefix), [](const auto &one) { return one.first; });
                other != into.end())
                return of_two_groups(masked(prefix), other->second, group);
            into.emplace_back(masked(prefix), group);
        }
    }
    if (into.size() > kMostPrefixes)
        return Error{ErrorCode::invalid_network_config, "groupCIDRs has " + std::to_string(into.size()) +
                                                            " prefixes, at most " + std::to_string(kMostPrefixes) +
                                                            " are supported"};
    return {};
}

Result<void> check_isolation(const Node &root, const Config &config) {
    if (config.isolation.by == IsolateBy::none)
        return {};
    if (config.isolation.by == IsolateBy::group && config.group_sources.empty())
        return root.at("isolation").wrong(R"("none" or "network", unless "groups" says who is in which group)");
    for (const char *key : {"uplink", "gateway", "table"})
        if (root.at(key).present())
            return root.at(key).wrong("none: connections by a network's own egress route are not isolated");
    return {};
}

Result<void> check_egress(const Node &root, const Config &config) {
    if (!config.egress_in_cluster)
        return {};
    if (config.cluster_cidrs.empty())
        return root.at("egress").wrong(R"("allow", unless "clusterCIDRs" says what the cluster is)");
    for (const char *key : {"uplink", "gateway", "table"})
        if (root.at(key).present())
            return root.at(key).wrong("none: connections by a network's own egress route do not meet the rules of "
                                      "\"egress\"");
    return {};
}

} // namespace podlane::cni
