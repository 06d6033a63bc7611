// SPDX-License-Identifier: MIT
#include "loader/limit_group.hpp"

#include "loader/edt.hpp"

namespace podlane {

Result<std::set<std::uint32_t>> unused_limit_groups(const Tables &tables, std::optional<std::uint32_t> network,
                                                    bool has_unnamed) {
    std::set<std::uint32_t> unused, named;
    if (tables.limit_groups.exists())
        for (const auto &[number, group] : TRY(tables.limit_groups.entries())) {
            named.insert(number);
            if (!network || group.network == *network)
                unused.insert(number);
        }
    if (has_unnamed)
        for (const auto &[number, limits] : TRY(tables.bandwidths.entries()))
            if ((number & LIMIT_GROUP) != 0 && !named.contains(number))
                unused.insert(number);
    if (!tables.limit_states.exists() || unused.empty())
        return std::set<std::uint32_t>{}; // without a look at the states of all pods
    std::optional<Error> failed;
    TRY(tables.limit_states.any_key([&](const limit_key &key) { // until each is seen in use
        const auto state = tables.limit_states.find(key);
        if (!state)
            failed = state.error();
        else if (*state)
            unused.erase((*state)->group);
        return failed || unused.empty();
    }));
    return failed ? Result<std::set<std::uint32_t>>(*std::move(failed)) : std::move(unused);
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
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        TRY(tables.limit_states.remove({number, direction}));
    TRY(tables.bandwidths.remove(number));
    TRY(tables.limit_groups.remove(number));
    return {};
}

} // namespace podlane
