// SPDX-License-Identifier: MIT
// Looks up the pod and its node at the API server, by the program podlane-k8s.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/request.hpp"

#include <string>

namespace podlane {

// An ADD of a configuration with the source "kubernetes" is completed by what the API server says of its pod, a CHECK
// by what its ADD got. Nothing is made yet, and no lock held. Other calls are left as they are.
Result<cni::Request> complete_identity(const cni::Request &request, const cni::Environment &environment);

// The answer of podlane-k8s, which has 2 s. `correct`: the way out if it is not installed.
Result<std::string> query_kubernetes(const cni::Request &request, const std::string &question,
                                     const std::string &correct);
// The same call with a configuration that was completed. Logs the warnings that are new.
Result<cni::Request> parse_again(const cni::Request &request, const cni::Environment &environment,
                                 const std::string &config);

} // namespace podlane
