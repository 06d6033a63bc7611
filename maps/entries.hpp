// SPDX-License-Identifier: MIT
// The map entries of an endpoint, as they follow from its record: they are written and verified by the same functions.
#pragma once

#include "maps/tables.hpp"

#include <cstring>
#include <span>
#include <type_traits>

namespace podlane {

// Of keys and values, which have no padding.
template <typename T> bool same_bytes(const T &a, const T &b) {
    static_assert(std::has_unique_object_representations_v<T>);
    return std::memcmp(&a, &b, sizeof a) == 0;
}

std::span<const ip_addr> addresses_in(const endpoint &record);
interface make_interface(const endpoint &record);
address make_address(const endpoint &record);

// An endpoint that announced another MAC: the programs note it in the host-side veth's entry. false: the record has it.
bool take_learned_mac(const interface &entry, endpoint &record);
// Whether an address's entry is the endpoint's. The MAC may be an earlier one: what delivers by it writes the right
// one.
bool is_entry_of(const endpoint &record, address entry);

// ErrorCode::try_again_later if its DEL is under way: it has removed the entry of the host-side veth, the endpoint's
// own goes last, and nothing removes what is inserted between the two. Under the exclusive lock of the root.
Result<void> refuse_half_deleted(const Interfaces &interfaces, const endpoint &record);

} // namespace podlane
