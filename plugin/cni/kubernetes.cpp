// SPDX-License-Identifier: MIT
#include "plugin/cni/kubernetes.hpp"

#include "maps/printable.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/cni/words.hpp"

#include <algorithm>
#include <array>

namespace podlane::cni {
namespace {

using json::Node;

// Of one object's labels or annotations. Settings are longer than what is shown as a label.
constexpr std::size_t kLongestText = 1024;
constexpr std::size_t kMostBytes = std::size_t{64} << 10U;

bool is_dns_label(std::string_view label) {
    constexpr std::size_t kLongest = 63;
    const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    return !label.empty() && label.size() <= kLongest && std::ranges::all_of(label, allowed) && label.front() != '-' &&
           label.back() != '-';
}

json::Value bounded(const Node &object) {
    json::Value texts = json::Value::object();
    if (!object.present() || !object.value().is_object())
        return texts;
    std::size_t bytes = 0;
    for (const auto &[key, value] : object.value().items()) {
        const auto *const text = value.get_ptr<const std::string *>();
        if (text == nullptr || !is_label_key(key) || text->size() > kLongestText || !is_printable(*text))
            continue;
        bytes += key.size() + text->size();
        if (bytes > kMostBytes)
            break;
        texts[key] = *text;
    }
    return texts;
}

// Where runtimes write annotations, and where all settings are read. Annotations that are there already win.
void add_annotations(const json::Value &annotations, json::Value &document) {
    json::Value &all = json::member(json::member(document, "runtimeConfig"), kPodAnnotations);
    for (const auto &[key, value] : annotations.items())
        if (!all.contains(key))
            all[key] = value;
}

Result<void> read_path(const Node &node, std::string &into) {
    return node.present() ? read_directory(node, into) : Result<void>{};
}

std::string question_to(const Kubernetes &server, json::Value question) {
    if (!server.kubeconfig.empty())
        question["kubeconfig"] = server.kubeconfig;
    else
        question.update({{"server", server.server}, {"tokenFile", server.token_file}, {"caFile", server.ca_file}});
    return json::print(question);
}

} // namespace

bool is_dns_name(std::string_view name) {
    if (name.size() > kLongestDnsName)
        return false;
    for (std::size_t start = 0; start <= name.size();) {
        const std::size_t end = std::min(name.find('.', start), name.size());
        if (!is_dns_label(name.substr(start, end - start)))
            return false;
        start = end + 1;
    }
    return true;
}

bool is_server_url(std::string_view url) {
    constexpr std::string_view kScheme = "https://";
    constexpr std::size_t kLongest = 1024;
    const auto allowed = [](char c) {
        return c > ' ' && c < '\x7f' && std::string_view("@?#\\\"").find(c) == std::string_view::npos;
    };
    return url.starts_with(kScheme) && url.size() > kScheme.size() && url[kScheme.size()] != '/' &&
           url.size() <= kLongest && std::ranges::all_of(url, allowed);
}

Result<void> read_kubernetes(const Node &node, Kubernetes &into) {
    constexpr std::array<Word<bool>, 2> kOnFailure{{{"refuse", true}, {"continue", false}}};
    constexpr std::array<std::string_view, 5> kKnown{"kubeconfig", "server", "tokenFile", "caFile", "onFailure"};
    TRY(node.must_be_object(R"({"kubeconfig": "/etc/cni/net.d/podlane-kubeconfig"})"));
    TRY(check_keys(node, kKnown));
    TRY(read_path(node.at("kubeconfig"), into.kubeconfig));
    TRY(json::read(node.at("server"), into.server));
    TRY(read_path(node.at("tokenFile"), into.token_file));
    TRY(read_path(node.at("caFile"), into.ca_file));
    TRY(read_word(node.at("onFailure"), kOnFailure, into.required));
    if (!into.server.empty() && !is_server_url(into.server))
        return node.at("server").wrong("\"https://HOST:PORT\"");
    const bool has_account = !into.server.empty() && !into.token_file.empty() && !into.ca_file.empty();
    if (node.present() && into.kubeconfig.empty() != has_account)
        return node.wrong("either \"kubeconfig\", or \"server\", \"tokenFile\" and \"caFile\"");
    return {};
}

Result<bool> has_pod_to_look_up(const Request &request) {
    if (request.command != Command::add || (request.config.identity & kKubernetes) == 0)
        return false;
    const Kubernetes &server = request.config.kubernetes;
    if (server.kubeconfig.empty() && server.server.empty())
        return Error{ErrorCode::invalid_network_config,
                     "identity has \"kubernetes\", and the configuration does not say how to reach the API server",
                     R"(add "kubernetes": {"kubeconfig": "PATH"})"};
    if (request.pod.name.empty() || request.pod.ns.empty())
        return false;
    if (!is_dns_name(request.pod.name) || !is_dns_label(request.pod.ns))
        return Error{ErrorCode::invalid_environment, "CNI_ARGS names the pod " +
                                                         json::quote(request.pod.ns + "/" + request.pod.name) +
                                                         ", which is no name that Kubernetes gives"};
    return true;
}

std::string kubernetes_question(const Request &request) {
    return question_to(request.config.kubernetes,
                       {{"namespace", request.pod.ns}, {"pod", request.pod.name}, {"uid", request.pod.uid}});
}

std::string node_question(const Kubernetes &server, const std::string &node) {
    return question_to(server, {{"node", node}});
}

json::Value texts_of(const Node &metadata) {
    return {{"labels", bounded(metadata.at("labels"))}, {"annotations", bounded(metadata.at("annotations"))}};
}

Result<std::string> with_kubernetes(std::string_view config, std::string_view answer) {
    json::Value document = TRY(json::parse_object(config, "the network configuration"));
    const json::Value said = TRY(json::parse_object(answer, "the answer of podlane-k8s"));
    const Node root(&said, {});
    const json::Value pod = texts_of(root.at("pod"));
    const json::Value ns = texts_of(root.at("namespace"));
    document[kKubernetesAnswer] = {{"podLabels", pod["labels"]}, {"namespaceLabels", ns["labels"]}};
    add_annotations(pod["annotations"], document);
    add_annotations(ns["annotations"], document);
    return json::print(document);
}

std::string with_kubernetes_of(const std::string &config, std::string_view earlier) {
    auto document = json::parse_object(config, "the network configuration");
    const auto recorded = json::parse_object(earlier, "the recorded configuration");
    if (!document || !recorded || !recorded->contains(kKubernetesAnswer))
        return config;
    (*document)[kKubernetesAnswer] = recorded->at(kKubernetesAnswer);
    const Node annotations = Node(&*recorded, {}).at_any_case("runtimeConfig").at_any_case(kPodAnnotations);
    if (annotations.present())
        add_annotations(annotations.value(), *document);
    return json::print(*document);
}

} // namespace podlane::cni
