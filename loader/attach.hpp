// Puts programs on the TC hooks of an interface: tcx where the kernel has it, classic clsact filters elsewhere.
//
// tcx programs are attached without a BPF link: they stay until they are detached or their device goes, so there is
// no second pin an endpoint that could be lost, go stale or keep a program on a hook that nobody finds again.
#pragma once

#include "maps/result.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane {

enum class Hook { ingress, egress };
enum class HookKind { tcx, clsact };

// A program of ours (by its name) on a hook.
struct Attached {
    std::uint32_t program_id = 0;
    std::string name;
    HookKind kind = HookKind::tcx;
};

// A program of somebody else on a tcx hook.
struct ForeignProgram {
    std::uint32_t program_id = 0;
    std::string name;
    bool before_ours = false;
};
Result<std::vector<ForeignProgram>> foreign_programs_on_tcx(std::uint32_t ifindex, Hook hook);

// tcx where the kernel has it.
HookKind preferred_kind();

// How programs get on an interface where `wanted` is clsact: by tcx where somebody's `ingress` qdisc has its place, and
// an error where the kernel has no tcx either.
Result<HookKind> usable_kind(std::uint32_t ifindex, HookKind wanted);

// Puts `program_fd` on the hook and takes off any other program of ours there, of whatever kind. Programs and qdiscs
// of others stay. Repeating it changes nothing.
Result<void> attach(std::uint32_t ifindex, Hook hook, HookKind kind, int program_fd);

// Takes every program of ours off the hook; false where there was none. A missing interface is no error.
Result<bool> detach(std::uint32_t ifindex, Hook hook);

// Programs of ours on the hook, of both kinds, in their order.
Result<std::vector<Attached>> attached(std::uint32_t ifindex, Hook hook);

} // namespace podlane
