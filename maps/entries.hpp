// SPDX-License-Identifier: MIT
// The map entries of an endpoint, as they follow from its record: they are written and verified by the same functions.
#pragma once

#include "maps/tables.hpp"

#include <span>

namespace podlane {

std::span<const ip_addr> addresses_in(const endpoint &record);
interface make_interface(const endpoint &record);
address make_address(const endpoint &record);

// An endpoint that announced another MAC: the programs note it in the host-side veth's entry. false: the record has it.
bool take_learned_mac(const interface &entry, endpoint &record);
// Whether an address's entry is the endpoint's. The MAC may be an earlier one: what delivers by it writes the right
// one.
bool is_entry_of(const endpoint &record, address entry);

} // namespace podlane
