// SPDX-License-Identifier: MIT
// Attaches programs to the TC hooks of an interface: tcx if the kernel has it, classic clsact filters otherwise.
//
// tcx programs are attached without a BPF link: they stay until they are detached or their device disappears. A link
// would need a pin for each endpoint, which could be lost or go stale.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "maps/result.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

enum class Hook { ingress, egress };
enum class HookKind { tcx, clsact };
// As entries record it.
constexpr endpoint_attach attach_of(HookKind kind) { return kind == HookKind::tcx ? ENDPOINT_TCX : ENDPOINT_CLSACT; }
constexpr HookKind hook_kind_of(std::uint32_t attach) {
    return attach == ENDPOINT_TCX ? HookKind::tcx : HookKind::clsact;
}

// One of Podlane's programs (by its name) on a hook.
struct Attached {
    std::uint32_t program_id = 0;
    std::string name;
    HookKind kind = HookKind::tcx;
};

// One of those of uplinks.
bool is_of_uplink(const Attached &one);

// tcx if the kernel has it.
HookKind preferred_kind();

// The hook to use if `wanted` is clsact: tcx if a foreign `ingress` qdisc occupies the clsact slot, and an error if the
// kernel has no tcx either.
Result<HookKind> usable_kind(std::uint32_t ifindex, HookKind wanted);

// Whether attach() can work by this kind: an error, with its remedy, if a foreign `ingress` qdisc occupies the clsact
// slot.
Result<void> check_slot(std::uint32_t ifindex, HookKind kind);

// Attaches `program_fd` to the hook and detaches any other program of Podlane's from it, of either kind. Foreign
// programs and qdiscs stay. Repeating it changes nothing.
Result<void> attach(std::uint32_t ifindex, Hook hook, HookKind kind, int program_fd);

// Detaches every program of Podlane's from the hook; false if there was none. A missing interface is no error.
Result<bool> detach(std::uint32_t ifindex, Hook hook);

// IDs of all programs on the tcx hook, in their order, none on a kernel without tcx, and of the one in Podlane's slot
// on clsact. The kernel requires CAP_NET_ADMIN.
Result<std::vector<std::uint32_t>> programs_on_hook(std::uint32_t ifindex, Hook hook);
using ProgramsOnHook = std::function<Result<std::vector<std::uint32_t>>(std::uint32_t ifindex, Hook hook)>;

// Whether this program is on the hook, of either kind. Unlike all others here this needs no capability but that of
// `on_hook`.
Result<bool> is_attached(std::uint32_t ifindex, Hook hook, int program_fd,
                         const ProgramsOnHook &on_hook = &programs_on_hook);

// Podlane's programs on the hook, of both kinds, in their order.
Result<std::vector<Attached>> attached(std::uint32_t ifindex, Hook hook);

// A foreign program on a tcx hook.
struct ForeignProgram {
    std::uint32_t program_id = 0;
    std::string name;
    bool before_ours = false;
};

// The programs on the hooks of many interfaces: looks each up once, and for filters only if there is a qdisc that can
// have them.
class HookSurvey {
  public:
    // A qdisc that is added later goes unseen.
    static Result<HookSurvey> make(net::Netlink &host);

    // As podlane::attached().
    Result<std::vector<Attached>> attached(std::uint32_t ifindex, Hook hook);
    Result<std::vector<ForeignProgram>> foreign_programs_on_tcx(std::uint32_t ifindex, Hook hook);
    [[nodiscard]] bool can_have_filters(std::uint32_t ifindex) const { return with_qdisc_.contains(ifindex); }

  private:
    explicit HookSurvey(std::set<std::uint32_t> with_qdisc) : with_qdisc_(std::move(with_qdisc)) {}

    std::set<std::uint32_t> with_qdisc_;
    std::map<std::uint32_t, std::string> names_{}; // of programs, by their ID
};

} // namespace podlane
