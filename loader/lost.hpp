// SPDX-License-Identifier: MIT
// Attachments whose entries in the maps are lost (deleted pins, an unmounted bpffs) while their interfaces live: their
// packets pass through programs of maps that are no longer pinned.
#pragma once

#include "loader/net/link.hpp"
#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/tables.hpp"

#include <map>
#include <string>
#include <vector>

namespace podlane {

// Whether its host-side veth exists or, if it never had one, the container's namespace, with rules in it.
Result<bool> is_living(const AttachmentRecord &record, net::Netlink &host);

// Those of one root's `records` that live and that `endpoints` does not know; null: no map exists. Records of another
// boot or node are left out, and those of which nobody can say whether they live: why is in `unknown`.
Result<std::vector<AttachmentRecord>> lost_attachments(std::vector<AttachmentRecord> records,
                                                       const Endpoints *endpoints, net::Netlink &host, Errors &unknown);

// The same of those that live no more: they died after their entries had been lost.
Result<std::vector<AttachmentRecord>> dead_attachments(std::vector<AttachmentRecord> records,
                                                       const Endpoints *endpoints, net::Netlink &host, Errors &unknown);

struct UnknownVeth {
    std::string name;
    std::string container_id;
    std::string ifname;
    bool has_torn_record = false; // of which nothing but the configuration is left
};
// Host-side veths among `links` with Podlane's alias that neither `endpoints` nor a whole record on disk knows.
Result<std::vector<UnknownVeth>> unknown_veths(const std::string &state_directory, const Endpoints *endpoints,
                                               const std::map<std::uint32_t, net::Link> &links);

} // namespace podlane
