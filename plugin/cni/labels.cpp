// SPDX-License-Identifier: MIT
#include "plugin/cni/labels.hpp"

#include "maps/printable.hpp"

#include <algorithm>
#include <array>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::string_view kOwnArguments[] = {"ips", "mac", "labels"}; // of args.cni, with a meaning of their own

// {"key": "value", …}
void add_members(const Node &object, Labels &into) {
    if (!object.present() || !object.value().is_object())
        return;
    for (const auto &[key, value] : object.value().items())
        if (const auto *const text = value.get_ptr<const std::string *>())
            (void)add_label(into, key, *text);
}

// [{"key": "app", "value": "web"}], as in the conventions of CNI.
void add_list(const Node &list, Labels &into) {
    const auto elements = list.elements();
    if (!elements)
        return add_members(list, into);
    for (const Node &element : *elements) {
        const auto key = element.at_any_case("key").text();
        const auto value = element.at_any_case("value").text();
        if (key)
            (void)add_label(into, *key, value ? *value : std::string());
    }
}

} // namespace

bool is_label_key(std::string_view key) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '/' || c == '-';
    };
    return !key.empty() && key.size() <= kLongestLabelKey && std::ranges::all_of(key, allowed);
}

bool add_label(Labels &into, std::string_view key, std::string_view value) {
    if (into.size() >= kMostLabels || !is_label_key(key) || value.size() > kLongestLabelValue || !is_printable(value))
        return false;
    return into.emplace(key, value).second;
}

void read_identity(const json::Value &document, std::uint32_t sources, PodIdentity &into) {
    const Node root(&document, {});
    const Node args = root.at_any_case("args");
    const Node cni = args.at_any_case("cni");
    if ((sources & kAnnotations) != 0)
        add_members(root.at_any_case("runtimeConfig").at_any_case(kPodAnnotations), into.annotations);
    if ((sources & kLabels) != 0)
        add_list(cni.at_any_case("labels"), into.labels);
    if ((sources & kMesos) != 0)
        add_list(args.at("org.apache.mesos").at("network_info").at("labels").at("labels"), into.labels);
    if ((sources & kCniArgs) == 0 || !cni.present() || !cni.value().is_object())
        return;
    for (const auto &[key, value] : cni.value().items()) // multus writes the pod's words here
        if (const auto *const text = value.get_ptr<const std::string *>())
            if (std::ranges::find(kOwnArguments, key) == std::end(kOwnArguments))
                (void)add_label(into.annotations, key, *text);
}

} // namespace podlane::cni
