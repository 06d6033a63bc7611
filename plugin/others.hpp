// SPDX-License-Identifier: MIT
// The node's other attachments, as the records on disk say: for what they share.
#pragma once

#include "loader/record.hpp"

#include <functional>
#include <string>
#include <vector>

namespace podlane {

using IsGone = std::function<bool(const AttachmentRecord &)>;

// Those of this network namespace and boot, of every root, whose host-side veth is there.
Result<std::vector<AttachmentRecord>> others_on_disk(const std::string &state_directory, const IsGone &is_gone);

// Removes the rules of loader/own_addresses.hpp, unless one of them is of a network with an egress route.
Result<void> drop_own_address_rules(const std::string &state_directory, const IsGone &is_gone);

} // namespace podlane
