// SPDX-License-Identifier: MIT
// Earliest departure time (EDT): the qdisc `fq` on a host-side veth holds each packet until the time that pl_to_pod
// set.
#pragma once

#include "maps/result.hpp"

#include <cstdint>

namespace podlane {

// Whether the kernel has `fq`; loads its module.
bool has_fq();

// Replaces the kernel's default qdisc with Podlane's `fq`. False, and nothing changed, if the kernel has none or a
// foreign qdisc is there.
Result<bool> put_fq(std::uint32_t ifindex);
// Removes Podlane's, and no other.
Result<void> remove_fq(std::uint32_t ifindex);

} // namespace podlane
