// SPDX-License-Identifier: MIT
#include "plugin/held_lease.hpp"
#include "plugin/log.hpp"
#include "plugin/remove.hpp"
#include "plugin/restore.hpp"
#include "plugin/turn.hpp"
#include "plugin/verbs.hpp"

#include <vector>

namespace podlane {

Result<std::string> del(const cni::Request &request) {
    if (request.is_of_no_add)
        return request.incomplete ? Result<std::string>(*request.incomplete) : std::string{};
    {
        const std::vector<Fd> turn = take_turn_of_del(request);
        TRY(remove_attachment(request, Lease::may_be_held));
    }
    release_expired_leases(request.config);
    // Pods that live on without their maps; a DEL that has removed its own attachment does not fail for them.
    if (auto restored = restore_after_removal(request.config); !restored)
        log(cni::Log::Level::warning, "restoring other pods: " + restored.error().message);
    if (request.incomplete)
        return *request.incomplete;
    return std::string{};
}

} // namespace podlane
