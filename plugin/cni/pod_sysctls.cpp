// SPDX-License-Identifier: MIT
#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/pod_settings.hpp"

#include <algorithm>

namespace podlane::cni {

using json::Node;

bool is_pod_sysctl(std::string_view name) {
    return name.starts_with("net.") && name.size() <= kLongestLabelKey && std::ranges::all_of(name, is_key_character) &&
           name.find("..") == std::string_view::npos && name.find("//") == std::string_view::npos &&
           name.find("./") == std::string_view::npos && name.find("/.") == std::string_view::npos &&
           !name.ends_with('.') && !name.ends_with('/');
}

Result<void> read_sysctls(const Node &node, Labels &into) {
    TRY(node.must_be_object(R"({"net.core.somaxconn": "1024"})"));
    if (!node.present())
        return {};
    for (const auto &[name, value] : node.value().items()) {
        const auto text = node.at(name).text();
        if (!is_pod_sysctl(name))
            return node.wrong("names below net, such as \"net.core.somaxconn\", and not " + json::quote(name));
        if (!node.at(name).present() || !node.at(name).value().is_string())
            return node.wrong("texts as values; that of " + json::quote(name) + " is none");
        if (!text || !is_printable(*text) || text->size() > kLongestLabelValue)
            return node.at(name).wrong("one line of at most " + std::to_string(kLongestLabelValue) +
                                       " printable characters");
        if (text->empty())
            return node.at(name).wrong("a value: writing none has no effect");
        into[name] = *text;
    }
    return {};
}

} // namespace podlane::cni
