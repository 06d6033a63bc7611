// SPDX-License-Identifier: MIT
// The network configuration of one plugin, from its JSON.
//
// Keys of ours: mtu, routes, defaultRoute, hostInterfacePrefix, fastPath, attach, antiSpoof, allowedSources,
// allowedEtherTypes, uplinks, clusterCIDRs, uplink, gateway, table, sourceRouting, mark, bpffs, maxEndpoints, maxPaths,
// log, bandwidth, and ingressRate, ingressBurst, egressRate, egressBurst as the reference `bandwidth` plugin has them.
// Keys of the specification: cniVersion, name, type, ipam, ipMasq, dns, capabilities, args, runtimeConfig, prevResult.
// Foreign keys, accepted and not read: those of a configuration list (disableCheck, disableGC, loadOnlyInlinedPlugins,
// plugins, cniVersions), of meta-plugins (delegates, deviceID, pciBusID, resourceName), and any with a '.' or a '/' in
// its name. Everything else is an error.
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

// The version the configuration names; the oldest where it names none.
Result<Version> read_version(const json::Node &root);

} // namespace podlane::cni
