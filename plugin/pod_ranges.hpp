// SPDX-License-Identifier: MIT
// "usePodCidr": the node's ranges for host-local, by podlane-k8s, and kept in the state directory.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/request.hpp"

#include <string>

namespace podlane {

// ADD and STATUS of a configuration that requests the node's ranges get them: those that are kept, or after five
// minutes what the API server says by then. If it says nothing, what is kept counts on. All other calls query nothing:
// host-local needs no range to find a lease. Nothing is made yet, and no lock held. Ranges that cannot be kept, or were
// kept and cannot be trusted, are logged, and fail no ADD that the API server answers.
Result<cni::Request> complete_pod_ranges(const cni::Request &request, const cni::Environment &environment);

// The configuration of a plugin with the ranges that were kept last for it; as it is if there are none. Queries
// nothing.
cni::json::Value with_kept_pod_ranges(const cni::json::Value &plugin, const std::string &state_directory);

// Removes what is kept, and what a killed call has left of it.
Result<void> forget_pod_ranges(const std::string &state_directory);

} // namespace podlane
