// SPDX-License-Identifier: MIT
// Prepares the node for its first pod: programs and maps in the kernel, forwarding switched on.
#pragma once

#include "loader/attach.hpp"
#include "loader/settings.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/plan.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <vector>

namespace podlane {

// Loads the programs if they are not loaded yet; errors name the missing feature (ErrorCode::plugin_not_available).
// ErrorCode::try_again_later if an uninstall came between.
Result<void> prepare_node(const cni::Config &config);
// The error of a call on a prepared node. If an uninstall has removed the programs since, it is
// ErrorCode::try_again_later, whichever step was the first to miss them.
Error with_removal(const cni::Config &config, Error error);
// The error of any call. If it needed a lock of the directory of pins, and an uninstall has removed that, it is
// ErrorCode::try_again_later.
Error with_missing_root(const cni::Config &config, Error error);
// After a call that failed with this error: whether pins were missing, and are restored now.
bool has_restored_pins(const cni::Config &config, const Error &error);
// Opens the maps of a prepared node; if some are missing, the error says why.
Result<Tables> open_node(const cni::Config &config);

// As the configuration says, or as the kernel likes best.
Result<HookKind> choose_hook_kind(const cni::Config &config);
// The same for an interface that others have worked on.
Result<HookKind> choose_hook_kind(const cni::Config &config, std::uint32_t ifindex);

// Forwarding of the families in use. With IPv6 forwarding, an interface that takes routes or addresses from router
// advertisements would ignore them: accept_ra becomes 2 there, and the log says so.
Result<void> write_node_settings(const cni::Config &config, net::Netlink &host, const std::vector<Setting> &settings);

// ErrorCode::check_failed if the node does not forward, or track connections, as the endpoint needs it.
Result<void> check_node(const std::string &root, const endpoint &record);

// Logs that the file of the settings was damaged, if this change has replaced it.
void log_replaced(const NodeSettings &settings, Change change);

// MTU of the interface of the default route in bytes; 0 if there is none.
Result<std::uint32_t> uplink_mtu(net::Netlink &host);

} // namespace podlane
