// Departure times: the qdisc `fq` on a host end, which holds each packet until the time that to_pod gave it.
#pragma once

#include "maps/result.hpp"

#include <cstdint>

namespace podlane {

// Whether the kernel has `fq`, which may be a module that is loaded only now.
bool has_fq();

// Puts a `fq` of ours where the kernel's own default is. False, and nothing changed, where the kernel has none or where
// somebody else's qdisc is.
Result<bool> put_fq(std::uint32_t ifindex);
// Takes ours away, and no other.
Result<void> remove_fq(std::uint32_t ifindex);

} // namespace podlane
