// SPDX-License-Identifier: MIT
// The network configuration of one plugin, from its JSON.
// plugin/cni/key.hpp has the list of its keys.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

namespace podlane::cni {

// `arguments` are those of CNI_ARGS, which args.cni and runtimeConfig override. For DEL and GC a wrong value is not an
// error: it keeps its default, and `ignored` gets the sentence. Only GC's list of valid attachments must be right.
Result<Config> read_config(const json::Value &document, Command command, const Arguments &arguments,
                           std::vector<std::string> &ignored);

// Whether the IPAM plugin is Podlane: that call would wait for the locks of this one. It never gives a lease.
[[nodiscard]] bool names_itself_for_ipam(const Config &config);

// The version the configuration names; the oldest if it names none.
Result<Version> read_version(const json::Node &root);

} // namespace podlane::cni
