// SPDX-License-Identifier: MIT
// A later plugin of the list (tuning) may give the container's interface another MAC or MTU. On a link without a bridge
// that concerns nobody else, and Podlane follows.
#pragma once

#include "loader/net/link.hpp"
#include "maps/tables.hpp"

namespace podlane {

// Writes the learned MAC into the record, the entries and the host's neighbours.
Result<void> follow_announced_mac(const Tables &tables, net::Netlink &host, const endpoint_key &key);
// The same of the container's interface as it is, too; `record` is the one that is stored. The interface keeps a MAC
// that a later plugin or a process in the container gave it, if only its own link knows it.
Result<void> follow_pod_link(const Tables &tables, net::Netlink &host, const endpoint_key &key, endpoint &record,
                             net::Netlink &pod, const std::string &ifname);

} // namespace podlane
