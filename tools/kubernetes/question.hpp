// SPDX-License-Identifier: MIT
// The question that the plugin has: who a pod is, or which ranges a node has, and where the API server is.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"

#include <string>
#include <string_view>

namespace podlane::k8s {

struct Question {
    std::string ns, pod, uid;
    std::string node; // instead of a pod
    std::string kubeconfig;
    std::string server, token_file, ca_file;
};

// Names that become part of a URL's path are names of the DNS.
Result<Question> parse_question(std::string_view text);

// That the API server's pod is the runtime's. The API object of a static pod has another UID, and names that of the
// kubelet in an annotation.
Result<void> check_uid(const cni::json::Node &metadata, const Question &question);

} // namespace podlane::k8s
