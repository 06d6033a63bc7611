// SPDX-License-Identifier: MIT
// Removes one attachment, whatever is left of it: DEL, GC, an ADD that finds an old sandbox's remains, and one that
// fails.
//
// It knows what to remove from the record in endpoints_v1, from the record on disk if the maps are lost, and
// from the names that follow from container ID and interface name. Both records are deleted last, and only if nothing
// failed: a call that fails or is killed midway leaves them for the next one.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/rollback.hpp"

namespace podlane {

// A lease whose IPAM plugin is not installed waits on record; for an ADD, whose own record takes that place, this is an
// error. So it is for all if the plugin fails: then the lease waits, too, and all else is removed. If the record is
// lost, none waits: then it is an error, too, if the configuration names no IPAM plugin, or one that is not installed.
// One may be held for a pod of the same name that comes back (plugin/held_lease.hpp).
enum class Lease { released, must_not_wait, may_be_held };

// Interface, programs, map entries, NAT, the network if it has no more pods, the lease. All steps run even if some of
// them fail; anything already gone counts as removed. Nothing that belongs to another attachment is touched: the
// host-side veth is known by container ID and interface name, never by the pod's name.
Result<void> remove_attachment(const cni::Request &request, Lease lease = Lease::released);

// The state of an attachment on the node, as its entry in endpoints_v1 has it.
struct Footprint {
    const cni::Request &request;
    endpoint entry;
    const cni::Config *of_add = nullptr; // none: the maps are searched for what is the endpoint's
    std::uint32_t uplink = 0;            // ifindex, of the network's egress route
    const Tables *tables = nullptr;      // none if they are lost
    bool has_egress_rules = false;
};

// For a repair that a DEL has overtaken: removes what it has restored, but neither lease nor records.
Result<void> remove_again(const Footprint &of, net::Netlink &host);

// For ADD: inserts the entry in endpoints_v1. Rolled back, all that a DEL would remove by it is removed, and
// then the entry, unless something is left.
Result<void> put_record(const Footprint &of, net::Netlink &host, Rollback &rollback);

// The host-side veth, known by its name and alias, or by the entry if the configuration names it differently by now.
Result<void> remove_host_veth(net::Netlink &host, const cni::Request &request, const endpoint *entry = nullptr);

} // namespace podlane
