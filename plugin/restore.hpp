// SPDX-License-Identifier: MIT
// Gives attachments that lost their entries in the maps (loader/lost.hpp) entries, current programs, the network, NAT
// and limits back, from their records on disk.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/result.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/endpoint.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

struct Restored {
    AttachmentRecord record;
    std::optional<Error> failed{}; // none: everything is back
};

// An attachment as the ADD of its record made it.
struct Recorded {
    cni::Request request;
    cni::Attachment lease;
    endpoint entry; // as in endpoints_v1
};

// After all endpoints are known: what the entries say of the container's other interfaces, and of the network's egress
// route.
Result<void> restore_source_routes(const Recorded &recorded, const Tables &tables, net::Netlink &host);

// The qdiscs of its limits, at the rates in the maps: those that an ADD or podlanectl set outlive lost pins.
Result<void> restore_limiter(const Recorded &recorded, const Tables &tables);

// For ADD: all of the root's, once for each generation of its pins. One that cannot be restored is logged and left as
// it is; then, and if a record cannot be read, the next call tries again, and then one a minute.
Result<void> restore_lost_endpoints(const cni::Config &config, const Tables &tables);

// For DEL: the same, and nothing unless the pins are new or gone, nor after an uninstall.
Result<void> restore_after_removal(const cni::Config &config);

// For repairs: all that are lost now, but for those that a DEL removes meanwhile. Loads programs and maps, or those of
// them whose pins are missing.
Result<std::vector<Restored>> restore_all(const std::string &state_directory, const std::string &root);

} // namespace podlane
