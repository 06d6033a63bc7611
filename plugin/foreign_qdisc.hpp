// SPDX-License-Identifier: MIT
// Another program's qdisc on a host-side veth, such as that of the reference plugin `bandwidth` behind Podlane: the
// fast path would bypass it, so the endpoint is taken off the fast path.
#pragma once

#include "loader/net/link.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <string>

namespace podlane {

// Its kind; empty if there is none. Podlane's own has LIMIT_QDISC as its handle.
Result<std::string> foreign_qdisc(net::Netlink &host, const net::Link &host_veth);
// The same, where no qdisc is in the place of clsact.
Result<std::string> foreign_root_qdisc(net::Netlink &host, const net::Link &host_veth);
// The same of an endpoint on the fast path. Empty for all others.
Result<std::string> bypassed_qdisc(net::Netlink &host, const endpoint &record);

// The endpoint's packets take the slow path from now on, in both directions.
Result<void> leave_fast_path(const Tables &tables, const endpoint_key &key);

// The plugins behind Podlane run after its ADD: the next ADD or CHECK looks at what they did. A failure is logged.
void look_behind_last_adds(const cni::Config &config, const Tables &tables, net::Netlink &host);

} // namespace podlane
