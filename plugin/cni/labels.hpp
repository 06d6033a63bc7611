// SPDX-License-Identifier: MIT
// Labels that others give a pod, bounded here and nowhere else: they end in records, logs, metrics and on terminals.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <string_view>

namespace podlane::cni {

// The capability by which containerd and CRI-O pass the annotations of a pod.
inline constexpr const char *kPodAnnotations = "io.kubernetes.cri.pod-annotations";

// A setting that came with the pod: where multus' `cni-args` set it for this attachment, or else among the annotations.
[[nodiscard]] json::Node pod_setting(const json::Node &root, std::string_view name);
// Adds those of `cni-args` to the annotations, before those that the pod has for all of its attachments.
void add_settings_of_attachment(json::Value &document);

inline constexpr std::size_t kMostLabels = 64;
inline constexpr std::size_t kLongestLabelKey = 317; // as in Kubernetes: a prefix of 253, '/', a name of 63
inline constexpr std::size_t kLongestLabelValue = 256;

// Letters, digits and "._/-".
[[nodiscard]] bool is_label_key(std::string_view key);

// false: left out, because key or value cannot be shown, or because there is one of this key, or too many. An empty
// value is one.
bool add_label(Labels &into, std::string_view key, std::string_view value);

// Adds what the configuration says of the pod by the given sources (kAnnotations and the like). Nothing here is an
// error: what is of another form, or beyond the bounds, is left out.
void read_identity(const json::Value &document, std::uint32_t sources, PodIdentity &into);

// Where the pod's groups come from: "namespace", "network", "name:X", "label:KEY", "annotation:KEY".
Result<void> read_groups(const json::Node &node, std::vector<std::string> &into);

// The groups by these sources: "namespace:shop", "network:pods", "tenant-a", "label:app=web", "annotation:team=blue".
// The kind is in the name, so that no annotation names the group of a namespace. A source that says nothing makes none.
std::vector<std::string> groups_of(const std::vector<std::string> &sources, const std::string &network,
                                   const PodIdentity &pod);

} // namespace podlane::cni
