// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/fast_path.hpp"

#include "loader/object.hpp"
#include "loader/probe.hpp"
#include "loader/tracking.hpp"
#include "plugin/plan.hpp"

#include <set>

namespace podlane::ctl {

namespace {

std::string query_words(const World &world) {
    const auto query = programs_query_conntrack(world.bpffs);
    if (!query)
        return "unknown: " + query.error().message;
    if (*query)
        return "follows conntrack";
    const auto kernel_can = kernel_has_ct_lookup();
    if (!kernel_can)
        return "slow path only: " + kernel_can.error().message;
    return *kernel_can
               ? "slow path only: the programs were loaded before the kernel had bpf_skb_ct_lookup (podlanectl upgrade)"
               : "slow path only: this kernel has no bpf_skb_ct_lookup (Linux 6.1)";
}

} // namespace

std::string fast_path_words(const World &world) {
    const auto replies = programs_distinguish_replies(world.bpffs);
    return query_words(world) + (!replies || *replies ? "" : "; \"isolation\" is refused: the kernel is locked down");
}

Result<std::vector<std::string>> networks_without_tracking(const std::vector<EndpointEntry> &endpoints) {
    std::set<std::string> followers;
    for (const auto &[key, record] : endpoints)
        if (follows_conntrack(record.flags))
            followers.emplace(field_text(record.network_name));
    std::vector<std::string> without;
    for (const std::string &network : followers)
        if (!TRY(is_tracking(network)))
            without.push_back(network);
    return without;
}

} // namespace podlane::ctl
