// SPDX-License-Identifier: MIT
#include "loader/object.hpp"
#include "plugin/ipam.hpp"
#include "plugin/node.hpp"
#include "plugin/verbs.hpp"

namespace podlane {

// Does what the first ADD would do to the node, and nothing else: what it could not do, STATUS says now.
Result<std::string> status(const cni::Request &request) {
    TRY(prepare_node(request.config));
    TRY(check_pins(request.config.bpffs));
    TRY(choose_hook_kind(request.config));
    if (!request.config.ipam_type.empty())
        TRY(ipam::status(request));
    return std::string{};
}

} // namespace podlane
