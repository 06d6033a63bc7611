// SPDX-License-Identifier: MIT
// What the programs are told of an endpoint, as it follows from its record: the entries of one are written and judged
// by the same functions.
#pragma once

#include "maps/tables.hpp"

#include <span>

namespace podlane {

std::span<const ip_addr> addresses_in(const endpoint &record);
interface make_interface(const endpoint &record);
address make_address(const endpoint &record);

} // namespace podlane
