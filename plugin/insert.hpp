// SPDX-License-Identifier: MIT
// The order in which ADD makes an endpoint known, whichever plugin created its interface.
#pragma once

#include "plugin/announcement.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/plan.hpp"

namespace podlane {

struct NewEndpoint {
    const cni::Request &request;
    const Plan &plan;
    const endpoint &record;
    const SourceEntries &sources;
    const std::vector<PeerInterface> &peers;
    const std::optional<EgressRoute> &egress;
};

// The record comes first, then all entries but the addresses (of an endpoint that is isolated, or whose egress is
// limited, those too), and the programs.
Result<void> insert_endpoint(const NewEndpoint &made, const Tables &tables, net::Netlink &host, Rollback &rollback);

// The addresses come last, if no other machine has them: from then on packets take the fast path. Returns ADD's result.
Result<cni::Attachment> publish_endpoint(const NewEndpoint &made, const ConflictProbe &probe, const Tables &tables,
                                         net::Netlink &host, Rollback &rollback);

} // namespace podlane
