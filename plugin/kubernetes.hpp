// SPDX-License-Identifier: MIT
// Who the pod is, as the API server knows it: the program podlane-k8s asks there.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/request.hpp"

namespace podlane {

// An ADD of a configuration with the source "kubernetes" is completed by what the API server says of its pod, a CHECK
// by what its ADD got. Nothing is made yet, and no lock held. Other calls are left as they are.
Result<cni::Request> complete_identity(const cni::Request &request, const cni::Environment &environment);

} // namespace podlane
