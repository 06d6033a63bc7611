// Takes one attachment away, whatever is left of it: DEL, GC, and an ADD that finds an old sandbox's remains.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

namespace podlane {

// Interface, programs and map entries; not the lease. What is missing is done already. Nothing that belongs to another
// attachment is touched: the host end is known by container ID and interface name, never by the pod's name.
Result<void> remove_attachment(const cni::Request &request);

} // namespace podlane
