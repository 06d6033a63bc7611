// SPDX-License-Identifier: MIT
// The queries about a pod or a node that the program podlane-k8s sends to the API server, and what counts of the
// answers. They are untrusted: they are bounded here, and handled like what runtimes say of a pod.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace podlane::cni {

// Of the configuration, at its top level. ADD writes it there; so the record of the attachment has it too.
inline constexpr const char *kKubernetesAnswer = "podlane/kubernetes";

Result<void> read_kubernetes(const json::Node &node, Kubernetes &into);
inline constexpr std::size_t kLongestDnsName = 253;
// Names of the DNS, which can be part of a URL's path: "web-0", "a.b". A namespace has no dot.
[[nodiscard]] bool is_dns_name(std::string_view name);
// An absolute https:// URL without user, query and fragment.
[[nodiscard]] bool is_server_url(std::string_view url);

// Whether a call has a pod to look up: ADD of a configuration with the source "kubernetes", and a pod in CNI_ARGS. An
// error if it names no server, or if the pod's name is none.
Result<bool> has_pod_to_look_up(const Request &request);
// Standard input of podlane-k8s: of a pod; of a node's ranges for pods, which it answers as {"podCIDRs": ["…"]}.
std::string kubernetes_question(const Request &request);
std::string node_question(const Kubernetes &server, const std::string &node);

// "labels" and "annotations" of an object's metadata, and nothing that cannot be shown or is too long.
json::Value texts_of(const json::Node &metadata);
// The configuration with what counts of the answer: annotations of the pod, and then of its namespace, where runtimes
// write a pod's; labels below the key above.
Result<std::string> with_kubernetes(std::string_view config, std::string_view answer);
// The configuration with the answer that an earlier one has.
std::string with_kubernetes_of(const std::string &config, std::string_view earlier);

} // namespace podlane::cni
