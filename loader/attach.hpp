// SPDX-License-Identifier: MIT
// Attaches programs to the TC hooks of an interface: tcx if the kernel has it, classic clsact filters otherwise.
//
// tcx programs are attached without a BPF link: they stay until they are detached or their device disappears. A link
// would need a pin for each endpoint, which could be lost or go stale.
#pragma once

#include "maps/result.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace podlane {

enum class Hook { ingress, egress };
enum class HookKind { tcx, clsact };

// One of Podlane's programs (by its name) on a hook.
struct Attached {
    std::uint32_t program_id = 0;
    std::string name;
    HookKind kind = HookKind::tcx;
};

// tcx if the kernel has it.
HookKind preferred_kind();

// The hook to use if `wanted` is clsact: tcx if a foreign `ingress` qdisc occupies the clsact slot, and an error if the
// kernel has no tcx either.
Result<HookKind> usable_kind(std::uint32_t ifindex, HookKind wanted);

// Attaches `program_fd` to the hook and detaches any other program of Podlane's from it, of either kind. Foreign
// programs and qdiscs stay. Repeating it changes nothing.
Result<void> attach(std::uint32_t ifindex, Hook hook, HookKind kind, int program_fd);

// Detaches every program of Podlane's from the hook; false if there was none. A missing interface is no error.
Result<bool> detach(std::uint32_t ifindex, Hook hook);

// IDs of all programs on the tcx hook, in their order; none on a kernel without tcx. The kernel requires CAP_NET_ADMIN.
Result<std::vector<std::uint32_t>> programs_on_tcx(std::uint32_t ifindex, Hook hook);
using ProgramsOnTcx = std::function<Result<std::vector<std::uint32_t>>(std::uint32_t ifindex, Hook hook)>;

// Whether this program is on the hook, of either kind. Unlike all others here this needs no capability but that of
// `on_tcx`.
Result<bool> is_attached(std::uint32_t ifindex, Hook hook, int program_fd,
                         const ProgramsOnTcx &on_tcx = &programs_on_tcx);

// Podlane's programs on the hook, of both kinds, in their order.
Result<std::vector<Attached>> attached(std::uint32_t ifindex, Hook hook);

} // namespace podlane
