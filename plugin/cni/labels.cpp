// SPDX-License-Identifier: MIT
#include "plugin/cni/labels.hpp"

#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/kubernetes.hpp"

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

// The settings of one attachment in multus' `cni-args`.
Node args_of(const Node &root) { return root.at_any_case("args").at_any_case("cni"); }

bool is_setting(std::string_view key, const Node &value) {
    return key.starts_with("podlane/") && value.present() && value.value().is_string();
}

} // namespace

Node pod_setting(const Node &root, std::string_view name) {
    Node own = args_of(root).at(name);
    return is_setting(name, own) ? own : root.at_any_case("runtimeConfig").at_any_case(kPodAnnotations).at(name);
}

void add_settings_of_attachment(json::Value &document) {
    const Node args = args_of(Node(&document, {}));
    if (!args.present() || !args.value().is_object())
        return;
    json::Value settings = json::Value::object();
    for (const auto &[key, value] : args.value().items())
        if (is_setting(key, args.at(key)))
            settings[key] = value;
    if (!settings.empty())
        json::member(json::member(document, "runtimeConfig"), kPodAnnotations).update(settings);
}

bool is_label_key(std::string_view key) {
    return !key.empty() && key.size() <= kLongestLabelKey && std::ranges::all_of(key, is_key_character);
}

bool add_label(Labels &into, std::string_view key, std::string_view value) {
    if (into.size() >= kMostLabels || !is_label_key(key) || value.size() > kLongestLabelValue || !is_printable(value))
        return false;
    return into.emplace(key, value).second;
}

Result<void> read_groups(const Node &node, std::vector<std::string> &into) {
    constexpr std::size_t kMost = 8;
    constexpr std::size_t kLongestName = 63;
    constexpr std::string_view kExpected =
        R"(at most 8 of "namespace", "network", "name:X", "label:KEY", "annotation:KEY")";
    if (!node.present())
        return {};
    for (const Node &element : TRY(node.elements(R"(["namespace", "name:tenant-a"])"))) {
        const std::string text = TRY(element.text());
        const std::size_t colon = std::min(text.find(':'), text.size());
        const std::string_view kind = std::string_view(text).substr(0, colon);
        const std::string_view rest = std::string_view(text).substr(std::min(colon + 1, text.size()));
        const bool alone = text == "namespace" || text == "network";
        const bool named = kind == "name" && rest.size() <= kLongestName;
        if (!alone && (!(named || kind == "label" || kind == "annotation") || !is_label_key(rest)))
            return element.wrong(kExpected);
        if (std::ranges::find(into, text) == into.end())
            into.push_back(text);
    }
    return into.size() > kMost ? Result<void>(node.wrong(kExpected)) : Result<void>{};
}

std::vector<std::string> groups_of(const std::vector<std::string> &sources, const std::string &network,
                                   const PodIdentity &pod) {
    std::vector<std::string> groups;
    const auto add_from = [&](const std::string &source, const Labels &all, std::string_view key) {
        if (const auto found = all.find(key); found != all.end())
            groups.push_back(source + "=" + found->second);
    };
    for (const std::string &source : sources) {
        const std::string_view rest =
            std::string_view(source).substr(std::min(source.find(':'), source.size() - 1) + 1);
        if (source == "network")
            groups.push_back("network:" + network);
        else if (source == "namespace" && !pod.ns.empty())
            groups.push_back("namespace:" + pod.ns);
        else if (source.starts_with("name:"))
            groups.emplace_back(rest);
        else if (source.starts_with("label:"))
            add_from(source, pod.labels, rest);
        else if (source.starts_with("annotation:"))
            add_from(source, pod.annotations, rest);
    }
    return groups;
}

void read_identity(const json::Value &document, std::uint32_t sources, PodIdentity &into) {
    const Node root(&document, {});
    const Node args = root.at_any_case("args");
    const Node cni = args.at_any_case("cni");
    if ((sources & (kAnnotations | kKubernetes)) != 0)
        add_members(root.at_any_case("runtimeConfig").at_any_case(kPodAnnotations), into.annotations);
    if ((sources & kLabels) != 0)
        add_list(cni.at_any_case("labels"), into.labels);
    if ((sources & kMesos) != 0)
        add_list(args.at("org.apache.mesos").at("network_info").at("labels").at("labels"), into.labels);
    if ((sources & kKubernetes) != 0) {
        const Node answer = root.at(kKubernetesAnswer);
        add_members(answer.at("namespaceLabels"), into.labels);
        add_members(answer.at("podLabels"), into.annotations); // the pod's author writes them too
    }
    if ((sources & kCniArgs) == 0 || !cni.present() || !cni.value().is_object())
        return;
    for (const auto &[key, value] : cni.value().items()) // multus writes the pod's words here
        if (const auto *const text = value.get_ptr<const std::string *>())
            if (std::ranges::find(kOwnArguments, key) == std::end(kOwnArguments))
                (void)add_label(into.annotations, key, *text);
}

} // namespace podlane::cni
