// What this kernel can do, asked once and of the kernel itself: versions say little where features are backported.
#pragma once

namespace podlane {

// TC programs attached without a qdisc (tcx, 6.6).
bool has_tcx();

} // namespace podlane
