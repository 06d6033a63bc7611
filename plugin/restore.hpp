// SPDX-License-Identifier: MIT
// Attachments whose entries in the maps are lost (deleted pins, an unmounted bpffs) while their interfaces live: their
// packets go through the programs of the old maps, which nobody sees. They get entries, current programs, the network,
// NAT and limits back, from their records on disk.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/endpoint.hpp"

namespace podlane {

// All of the root's, once for each generation of its pins. One that cannot be restored is logged and left as it is.
Result<void> restore_lost_endpoints(const cni::Config &config, const Tables &tables);

} // namespace podlane
