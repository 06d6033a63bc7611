// SPDX-License-Identifier: MIT
// Settings that a pod makes by annotations, and those it may make. A pod's author is nobody's administrator: a
// setting counts only if `podMay` grants it, and within the bounds there.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <array>
#include <string>
#include <vector>

namespace podlane::cni {

// A list of settings, or an object of settings with their bounds.
Result<void> read_pod_may(const json::Node &node, std::array<Permission, kPodSettings> &into);
Result<void> read_pod_may_not(const json::Node &node, bool &refuse);
// "net.core.somaxconn": components, none of them a step in a path, below net.
[[nodiscard]] bool is_pod_sysctl(std::string_view name);
Result<void> read_sysctls(const json::Node &node, Labels &into);

// Applies the annotations of the pod in `root` to a configuration that was read. A setting that the pod may not make is
// an error, or ignored with a warning, as the configuration says.
Result<void> apply_annotations(const json::Node &root, Config &config, std::vector<std::string> &warnings);

} // namespace podlane::cni
