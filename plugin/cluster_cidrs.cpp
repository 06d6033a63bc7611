// SPDX-License-Identifier: MIT
#include "plugin/cluster_cidrs.hpp"

#include "loader/pins.hpp"
#include "plugin/isolation.hpp"
#include "plugin/network.hpp"
#include "plugin/newest_cidrs.hpp"
#include "plugin/network_keys.hpp"
#include "plugin/others.hpp"
#include "maps/entries.hpp"

#include <algorithm>

namespace podlane {
namespace {

// Whether those of the newest ADD are there. If these are not kept: those of the configuration or of the newest living
// pod.
Result<bool> shows_cidrs(const cni::Config &config, const Tables &tables, const endpoint &record) {
    const auto known = TRY(cidrs_of(tables, record.network));
    if (const auto newest = TRY(newest_cidrs(config)))
        return std::ranges::all_of(
            *newest, [&](const Prefix &prefix) { return is_in(known, make_cluster_cidr_key(record.network, prefix)); });
    const auto are_known = [&](const cni::Config &one) -> Result<bool> {
        return are_in(keys_of(TRY(plan_network(one, recorded_facts(record)))), known);
    };
    if (TRY(are_known(config)))
        return true;
    const auto newest = newest_config(TRY(living_on_disk(config.state_dir)), config.name);
    return newest ? are_known(*newest) : Result<bool>(false);
}

} // namespace

Result<std::vector<cluster_cidr_key>> cidrs_of(const Tables &tables, std::uint32_t network, bool *are_right) {
    std::vector<cluster_cidr_key> own;
    for (const auto &[key, value] : TRY(tables.cluster_cidrs.entries()))
        if (network_of(key) == network) {
            own.push_back(key);
            if (are_right != nullptr)
                *are_right = *are_right && value == make_prefix_value(prefix_of(key));
        }
    return own;
}

std::vector<cluster_cidr_key> keys_of(const NetworkPlan &plan) {
    std::vector<cluster_cidr_key> keys;
    for (const Prefix &prefix : plan.cluster_cidrs)
        keys.push_back(make_cluster_cidr_key(plan.id, prefix));
    return keys;
}

std::vector<Prefix> cidr_prefixes(const std::vector<cluster_cidr_key> &keys) {
    std::vector<Prefix> prefixes(keys.size());
    std::ranges::transform(keys, prefixes.begin(), [](const cluster_cidr_key &key) { return prefix_of(key); });
    return prefixes;
}

bool is_in(const std::vector<cluster_cidr_key> &keys, const cluster_cidr_key &key) {
    return std::ranges::any_of(keys, [&](const auto &one) { return same_bytes(one, key); });
}

bool are_in(const std::vector<cluster_cidr_key> &keys, const std::vector<cluster_cidr_key> &all) {
    return std::ranges::all_of(keys, [&](const auto &key) { return is_in(all, key); });
}

Result<void> keep_cidrs(const Tables &tables, cni::Config &config) {
    const NetworkPlan plan = TRY(plan_network(config, {}));
    const auto known = TRY(cidrs_of(tables, plan.id)), wanted = keys_of(plan);
    if (TRY(tables.networks.find(plan.id)) && are_in(wanted, known) && !are_in(known, wanted))
        config.cluster_cidrs = cidr_prefixes(known);
    return {};
}

Result<void> put_cidrs(const Tables &tables, std::uint32_t network, const std::vector<cluster_cidr_key> &wanted) {
    bool were_right = true;
    const auto there = TRY(cidrs_of(tables, network, &were_right));
    for (const cluster_cidr_key &key : wanted)
        TRY(tables.cluster_cidrs.update(key, make_prefix_value(prefix_of(key))));
    for (const cluster_cidr_key &key : there)
        if (!is_in(wanted, key))
            TRY(tables.cluster_cidrs.remove(key));
    return were_right && are_in(wanted, there) && are_in(there, wanted) ? Result<void>{}
                                                                        : count_isolation_change(tables.watches);
}

// An ADD that changes them may be under way.
Result<bool> has_cidrs(const cni::Config &config, const Tables &tables, const endpoint &record) {
    if (TRY(shows_cidrs(config, tables, record)))
        return true;
    const Lock lock = TRY(Lock::shared(config.bpffs));
    return shows_cidrs(config, tables, record);
}

} // namespace podlane
