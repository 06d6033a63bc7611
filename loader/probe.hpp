// SPDX-License-Identifier: MIT
// The kernel's features, found by trying them: a version number says little if features are backported.
#pragma once

#include "maps/result.hpp"

#include <string_view>
#include <vector>

namespace podlane {

// Not in libbpf 1.1: linux/bpf.h of 6.6.
constexpr int kTcxIngress = 46, kTcxEgress = 47;

// TC programs attached without a qdisc (tcx, 6.6).
bool has_tcx();

// The requirements of the programs.
struct Feature {
    std::string_view name;  // "the helper bpf_redirect_peer"
    std::string_view since; // "Linux 5.10"
};

// Those the kernel does not have, each tried by loading a small program or creating a small map.
Result<std::vector<Feature>> missing_features();

// Whether the kernel, or its module nf_conntrack, has the functions by which programs query conntrack (Linux 6.1). The
// module is loaded if it is not.
Result<bool> kernel_has_ct_lookup();

// Whether programs may read the kernel's memory, as they do to distinguish replies: not if the kernel is locked down in
// mode confidentiality.
Result<bool> kernel_is_readable();

} // namespace podlane
