// SPDX-License-Identifier: MIT
#include "plugin/network_keys.hpp"

#include "plugin/egress_route.hpp"
#include "plugin/newest_cidrs.hpp"
#include "plugin/others.hpp"
#include "plugin/plan.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

template <typename IsMeant>
std::optional<cni::Config> newest_of(const std::vector<AttachmentRecord> &living, const std::string &network,
                                     IsMeant is_meant) {
    for (const AttachmentRecord &record : living)
        if (record.network == network)
            if (auto request = recorded_request(record); request && is_meant(request->config))
                return std::move(request->config);
    return std::nullopt;
}

bool wants_uplinks(const cni::Config &config) {
    const auto plan = plan_network(config, {});
    return plan && plan->entry.has_uplinks != 0;
}

Result<std::pair<std::size_t, std::uint64_t>> seen_in(const Endpoints &endpoints) {
    const auto entries = TRY(endpoints.entries());
    std::uint64_t newest_ns = 0;
    for (const auto &[key, entry] : entries)
        newest_ns = std::max<std::uint64_t>(newest_ns, entry.created_ns);
    return std::pair(entries.size(), newest_ns);
}

} // namespace

Result<const std::vector<AttachmentRecord> *> LivingPods::of(const std::string &state_directory, const Tables &tables) {
    const auto seen = TRY(seen_in(tables.endpoints)); // an ADD writes its record first
    auto known = read_.find(state_directory);
    if (known == read_.end() || known->second.seen != seen)
        known = read_.insert_or_assign(state_directory, Read{seen, TRY(living_on_disk(state_directory))}).first;
    return &known->second.records;
}

std::optional<cni::Config> newest_config(const std::vector<AttachmentRecord> &living, const std::string &network) {
    return newest_of(living, network, [](const cni::Config &) { return true; });
}

Result<void> take_network_keys(const std::vector<AttachmentRecord> &living, net::Netlink &host, cni::Config &config) {
    if (const auto newest = newest_config(living, config.name)) {
        config.cluster_cidrs = TRY(newest_cidrs(*newest)).value_or(newest->cluster_cidrs);
        config.no_masquerade = newest->no_masquerade;
    }
    if (wants_uplinks(config)) { // one that wants none leaves those of the others alone
        const cni::Config newest = newest_of(living, config.name, wants_uplinks).value_or(config);
        const auto egress = find_egress_route(newest, host); // an uplink that is gone fails its own pods only
        config.uplinks = uplinks_of(newest, egress ? *egress : std::nullopt);
        if (!egress && !newest.uplink.empty() &&
            std::ranges::find(config.uplinks, newest.uplink) == config.uplinks.end())
            config.uplinks.push_back(newest.uplink); // it may come back
        config.attach = newest.attach;
    }
    const auto is_in_group = [&](const cni::Config &one) { return one.limit_group == config.limit_group; };
    if (!config.limit_group.empty())
        if (const auto newest = newest_of(living, config.name, is_in_group))
            config.limit_groups = newest->limit_groups;
    return {};
}

} // namespace podlane
