// What this kernel can do, asked once and of the kernel itself: versions say little where features are backported.
#pragma once

#include <string_view>
#include <vector>

namespace podlane {

// TC programs attached without a qdisc (tcx, 6.6).
bool has_tcx();

// What the programs cannot do without.
struct Feature {
    std::string_view name;  // "the helper bpf_redirect_peer"
    std::string_view since; // "Linux 5.10"
};

// Those the kernel refuses, each tried by loading a small program or making a small map. Needs the right to do so.
std::vector<Feature> missing_features();

} // namespace podlane
