// SPDX-License-Identifier: MIT
#include "plugin/load.hpp"

#include "loader/pins.hpp"
#include "loader/upgrade.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/node.hpp"
#include "plugin/state.hpp"

namespace podlane {

Result<LoadedNode> load_node(const std::string &configuration, const std::optional<std::string> &bpffs) {
    // STATUS is about the node, as this is; no plugin is called.
    cni::Request request =
        TRY(cni::parse_request({{"CNI_COMMAND", "STATUS"}, {"CNI_PATH", "/opt/cni/bin"}}, configuration));
    if (bpffs)
        request.config.bpffs = *bpffs;
    const bool was_loaded = TRY(is_pinned(live_directory(request.config.bpffs)));
    LoadedNode node{request.config.bpffs, was_loaded};
    TRY(prepare_node(request.config));
    TRY(complete_pins(request.config.bpffs));
    TRY(records_of(request.config).forget_uninstall());
    return node;
}

} // namespace podlane
