// SPDX-License-Identifier: MIT
// Removes one attachment, whatever is left of it: DEL, GC, and an ADD that finds an old sandbox's remains.
//
// What is to be removed is known from the record in endpoints_v1, from the record on disk if the maps are lost, and
// from the names that follow from container ID and interface name. Both records are erased last, and only if nothing
// failed: a call that fails or is killed midway leaves them for the next one.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

namespace podlane {

// Interface, programs, map entries, NAT, the network if it has no more pods, the lease. All steps run even if some of
// them fail; anything already gone counts as removed. Nothing that belongs to another attachment is touched: the
// host-side veth is known by container ID and interface name, never by the pod's name.
Result<void> remove_attachment(const cni::Request &request);

// From the host-side veth of another main plugin, which is set down: until that plugin's DEL removes it, nothing checks
// what the pod sends.
Result<void> detach_programs(net::Netlink &host, const endpoint &entry);

} // namespace podlane
