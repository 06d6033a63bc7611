// SPDX-License-Identifier: MIT
#include "plugin/cni/annotation_values.hpp"

#include "plugin/cni/unicast.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::size_t kMostOfAList = 16;

bool is_within(const Prefix &prefix, const std::vector<Prefix> &bounds) {
    return bounds.empty() || std::ranges::any_of(bounds, [&](const Prefix &bound) { return contains(bound, prefix); });
}

} // namespace

Result<std::vector<std::string>> list_in(const Node &annotation) {
    const auto given = annotation.text();
    if (!given)
        return given.error();
    const std::string &text = *given;
    std::vector<std::string> items;
    if (text.starts_with('[')) {
        const auto parsed = json::parse_object("{\"list\": " + text + "}", "the annotation");
        if (!parsed || parsed->size() != 1)
            return annotation.wrong("a list");
        if (!json::read(Node(&*parsed, {}).at("list"), items))
            return annotation.wrong("a list of texts");
    } else {
        for (std::size_t start = 0; start <= text.size();) {
            const std::size_t end = std::min(text.find(',', start), text.size());
            const std::size_t first = std::min(text.find_first_not_of(' ', start), end);
            items.push_back(text.substr(first, text.find_last_not_of(' ', end - 1) + 1 - first));
            start = end + 1;
        }
    }
    if (items.empty() || items.size() > kMostOfAList || std::ranges::any_of(items, &std::string::empty))
        return annotation.wrong("a list of 1 to 16, such as [\"198.18.1.7\"]");
    return items;
}

Result<std::vector<Prefix>> prefixes_in(const Node &annotation, const Permission &permission) {
    std::vector<Prefix> prefixes;
    for (const std::string &item : TRY(list_in(annotation))) {
        const auto prefix = parse_prefix(item);
        if (!prefix)
            return annotation.wrong("addresses or prefixes", prefix.error().hint);
        if (!is_within(*prefix, permission.within))
            return annotation.wrong("what podMay has in \"within\"");
        if (std::ranges::find(prefixes, *prefix) == prefixes.end())
            prefixes.push_back(*prefix);
    }
    return prefixes;
}

Result<std::vector<Prefix>> addresses_in(const Node &annotation, const Permission &permission) {
    auto addresses = TRY(prefixes_in(annotation, permission));
    for (Prefix &one : addresses) {
        if (!is_unicast(one.addr) || is_link_local(one.addr))
            return annotation.wrong("unicast addresses");
        one = host_prefix(one.addr);
    }
    return addresses;
}

} // namespace podlane::cni
