// SPDX-License-Identifier: MIT
// A plan as JSON: for the log of an ADD at level debug, and for tests.
#pragma once

#include "plugin/entries.hpp"
#include "plugin/plan.hpp"

#include <string>

namespace podlane {

// Everything that the attachment consists of: links, addresses, routes, neighbours, settings, programs, map entries,
// NAT, the network and the lease. With an indent of -1 in one line.
std::string to_json(const Plan &plan, const EndpointEntries &entries, const SourceEntries &sources, int indent = 4);

} // namespace podlane
