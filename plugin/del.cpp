// SPDX-License-Identifier: MIT
#include "plugin/held_lease.hpp"
#include "plugin/log.hpp"
#include "plugin/remove.hpp"
#include "plugin/restore.hpp"
#include "plugin/state.hpp"
#include "plugin/turn.hpp"
#include "plugin/verbs.hpp"

#include <vector>

namespace podlane {
namespace {

// An ADD that is to write its record yet would not notice this DEL.
Result<void> remove_recorded(const cni::Request &request) {
    bool is_beside_add = false;
    const std::vector<Fd> turn = take_turn_of_del(request, is_beside_add);
    const auto recorded = is_beside_add ? is_on_record(request) : Result<bool>(true);
    TRY(remove_attachment(request, Lease::may_be_held));
    if (!recorded || *recorded)
        return {};
    return Error{ErrorCode::try_again_later,
                 "an ADD of container " + request.container_id + ", " + request.ifname +
                     " is still going on, and has nothing on record yet that this DEL could remove",
                 "repeat the DEL when the ADD has ended; see the processes of podlane, and end one that hangs"};
}

} // namespace

Result<std::string> del(const cni::Request &request) {
    if (request.is_of_no_add)
        return request.incomplete ? Result<std::string>(*request.incomplete) : std::string{};
    TRY(remove_recorded(request));
    release_expired_leases(request.config);
    // Pods that live on without their maps; a DEL that has removed its own attachment does not fail for them.
    if (auto restored = restore_after_removal(request.config); !restored)
        log(cni::Log::Level::warning, "restoring other pods: " + restored.error().message);
    if (request.incomplete)
        return *request.incomplete;
    return std::string{};
}

} // namespace podlane
