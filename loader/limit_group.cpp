// SPDX-License-Identifier: MIT
#include "loader/limit_group.hpp"

#include "loader/edt.hpp"

#include <map>

namespace podlane {

Result<std::vector<UnusedGroup>> unused_limit_groups(const Tables &tables, std::optional<std::uint32_t> network,
                                                     std::optional<std::uint32_t> unnamed) {
    std::map<std::uint32_t, std::uint32_t> networks; // by the group's number
    if (!tables.limit_states.exists())
        return std::vector<UnusedGroup>{};
    if (tables.limit_groups.exists())
        for (const auto &[number, group] : TRY(tables.limit_groups.entries()))
            if (!network || group.network == *network)
                networks.insert({number, group.network});
    if (network && unnamed && TRY(tables.limit_states.find({*unnamed, LIMIT_INGRESS})))
        networks.insert({*unnamed, *network});
    if (networks.empty())
        return std::vector<UnusedGroup>{}; // without a look at the states of all pods
    std::optional<Error> failed;
    TRY(tables.limit_states.any_key([&](const limit_key &key) { // until each is seen in use
        const auto state = tables.limit_states.find(key);
        if (!state)
            failed = state.error();
        else if (*state)
            networks.erase((*state)->group);
        return failed || networks.empty();
    }));
    if (failed)
        return *std::move(failed);
    std::vector<UnusedGroup> unused;
    for (const auto &[number, of] : networks)
        unused.push_back({number, of});
    return unused;
}

bandwidth with_borrowed(bandwidth limits, const bandwidth &group) {
    if (group.ingress_rate_bits_per_s > limits.ingress_rate_bits_per_s) {
        limits.ingress_rate_bits_per_s = group.ingress_rate_bits_per_s;
        limits.ingress_burst_bits = group.ingress_burst_bits;
    }
    return limits;
}

Result<bandwidth> with_borrowed(const Bandwidths &bandwidths, const LimitStates &states, std::uint32_t ifindex,
                                const bandwidth &limits) {
    const auto state = TRY(states.find({ifindex, LIMIT_INGRESS}));
    const auto group = state && state->group != 0 ? TRY(bandwidths.find(state->group)) : std::nullopt;
    return group ? with_borrowed(limits, *group) : limits;
}

Result<void> follow_group_rate(const Tables &tables, std::uint32_t number) {
    for (const auto &[key, state] : TRY(tables.limit_states.entries())) {
        if (state.group != number || key.direction != LIMIT_INGRESS)
            continue;
        const auto known = TRY(tables.interfaces.find(key.ifindex));
        const bandwidth own = TRY(tables.bandwidths.find(key.ifindex)).value_or(bandwidth{});
        if (!known || (known->flags & INTERFACE_LIMIT_EDT) == 0 || own.ingress_rate_bits_per_s == 0)
            continue;
        const bandwidth most = TRY(with_borrowed(tables.bandwidths, tables.limit_states, key.ifindex, own));
        TRY(put_edt(key.ifindex, most.ingress_rate_bits_per_s, most.ingress_burst_bits));
    }
    return {};
}

Result<void> remove_limit_group(const Tables &tables, std::uint32_t number) {
    TRY(tables.bandwidths.remove(number));
    for (const limit_direction direction : {LIMIT_EGRESS, LIMIT_INGRESS})
        TRY(tables.limit_states.remove({number, direction}));
    TRY(tables.limit_groups.remove(number));
    return {};
}

} // namespace podlane
