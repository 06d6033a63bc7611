// SPDX-License-Identifier: MIT
// The programs on the TC hooks of many interfaces: looks each up once, and for filters only if there is a qdisc that
// can have them.
#pragma once

#include "loader/attach.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

// A foreign program on a tcx hook.
struct ForeignProgram {
    std::uint32_t program_id = 0;
    std::string name;
    bool before_ours = false;
};

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
