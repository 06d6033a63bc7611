// SPDX-License-Identifier: MIT
#include "loader/limit.hpp"

#include "loader/edt.hpp"
#include "loader/limit_group.hpp"
#include "loader/pace.hpp"
#include "maps/abi/fair_share.h"
#include "maps/clock.hpp"
#include "maps/entries.hpp"

#include <algorithm>
#include <array>

namespace podlane {
namespace {

std::uint32_t flags_with(std::uint32_t flags, const bandwidth &limits) {
    flags &= ~static_cast<std::uint32_t>(INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EGRESS);
    if (limits.ingress_rate_bits_per_s != 0)
        flags |= INTERFACE_LIMIT_INGRESS;
    if (limits.egress_rate_bits_per_s != 0)
        flags |= INTERFACE_LIMIT_EGRESS;
    return flags;
}

struct Direction {
    __u64 bandwidth::*rate;
    __u64 bandwidth::*burst;
    limit_direction number;
};
constexpr std::array kDirections = {
    Direction{&bandwidth::ingress_rate_bits_per_s, &bandwidth::ingress_burst_bits, LIMIT_INGRESS},
    Direction{&bandwidth::egress_rate_bits_per_s, &bandwidth::egress_burst_bits, LIMIT_EGRESS},
};

// The higher rate of two, in each direction.
bandwidth wider(const bandwidth &a, const bandwidth &b) {
    bandwidth both = a;
    for (const Direction &one : kDirections)
        if (b.*one.rate > a.*one.rate) {
            both.*one.rate = b.*one.rate;
            both.*one.burst = b.*one.burst;
        }
    return both;
}

// Nothing is charged before a limit is enforced. Only the programs write the state of one that changes.
Result<RateChanges> put_states(const LimitTables &tables, std::uint32_t ifindex, const bandwidth &was,
                               const bandwidth &limits) {
    RateChanges changes;
    for (const Direction &one : kDirections) {
        const limit_key key{ifindex, static_cast<std::uint32_t>(one.number)};
        const std::uint64_t rate = limits.*one.rate;
        if (was.*one.rate != 0) {
            if (rate != 0 && rate != was.*one.rate)
                changes.at(one.number) = {was.*one.rate, rate};
            continue;
        }
        const auto there = TRY(tables.states.find(key));
        limit_state state = there.value_or(limit_state{});
        if (rate != 0) {
            limit given{};
            make_limit(&given, rate, limits.*one.burst);
            state.coming_bits_per_s = 0;
            restart_share(&state, &given, monotonic_ns());
        }
        if (rate != 0 || !there)
            TRY(tables.states.update(key, state));
    }
    return changes;
}

// Last step: the programs look up a limit only if the flags say that there is one.
Result<void> put_flags(const LimitTables &tables, const endpoint &record) {
    if (auto known = TRY(tables.interfaces.find(record.ifindex))) {
        known->flags = record.flags;
        TRY(tables.interfaces.replace(record.ifindex, *known));
    }
    for (const ip_addr &addr : addresses_in(record)) {
        const address_key key{record.network, addr};
        auto known = TRY(tables.addresses.find(key));
        if (!known || known->ifindex != record.ifindex)
            continue;
        known->flags = record.flags;
        TRY(tables.addresses.replace(key, *known));
    }
    return {};
}

} // namespace

bool is_auto_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    return is_auto_burst_bits(std::max<std::uint64_t>(rate_bits_per_s, 1), burst_bits);
}

std::uint64_t effective_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    return effective_burst_bits(std::max<std::uint64_t>(rate_bits_per_s, 1), burst_bits);
}

std::string limiter_words(std::uint32_t flags, limit_direction direction, bool pacing, bool shaped) {
    const bool ingress = direction == LIMIT_INGRESS;
    const std::uint32_t unpaced = ingress ? INTERFACE_LIMIT_UNPACED_INGRESS : INTERFACE_LIMIT_UNPACED_EGRESS;
    std::string words = pacing && (flags & unpaced) == 0 ? "pace, " : "";
    if (ingress && (flags & INTERFACE_LIMIT_EDT) != 0)
        words += "edt, ";
    if (!ingress && shaped)
        words += "shape, ";
    return words + "bucket";
}

std::uint32_t unpaced_flags(bool pacing) {
    return pacing ? 0U : std::uint32_t{INTERFACE_LIMIT_UNPACED_INGRESS} | INTERFACE_LIMIT_UNPACED_EGRESS;
}

bool is_enforced(const endpoint &record, const bandwidth &limits) {
    return (flags_with(record.flags, limits) & ~record.flags) == 0;
}

Result<LimitTables> LimitTables::open(const std::string &root) {
    return LimitTables{TRY(open_endpoints(root, Access::read_write)),    TRY(open_interfaces(root, Access::read_write)),
                       TRY(open_addresses(root, Access::read_write)),    TRY(open_bandwidths(root, Access::read_write)),
                       TRY(open_limit_states(root, Access::read_write)), TRY(is_pacing(root))};
}

// Senders are notified before the limit is enforced, or packets sent at another rate would be dropped.
namespace {

// Noted before the container has the qdisc, so that a call after this one, if that is killed or fails, changes it back.
Result<void> shape_and_note(const LimitTables &tables, const endpoint_key &key, endpoint &record,
                            const bandwidth &limits, const ShapeSender &shape) {
    if (auto noted = TRY(tables.endpoints.find(key));
        noted && noted->shaped == 0 && limits.egress_rate_bits_per_s != 0) {
        noted->shaped = 1;
        TRY(tables.endpoints.replace(key, *noted));
    }
    record.shaped = TRY(shape(record, limits)) ? 1 : 0;
    return {};
}

} // namespace

Result<void> set_limits(const LimitTables &tables, const endpoint_key &key, const bandwidth &limits,
                        const NotifyConnections &notify, const ShapeSender &shape) {
    auto record = TRY(tables.endpoints.find(key));
    if (!record)
        return Error{ErrorCode::missing, "the endpoint is gone"};
    record->flags = flags_with(record->flags, limits);
    const bandwidth most = TRY(with_borrowed(tables.bandwidths, tables.states, record->ifindex, limits));
    if (limits.ingress_rate_bits_per_s != 0 && (record->flags & INTERFACE_LIMIT_NO_EDT) == 0 &&
        !TRY(put_edt(record->ifindex, most.ingress_rate_bits_per_s, most.ingress_burst_bits)).empty())
        record->flags |= INTERFACE_LIMIT_EDT;
    record->flags |= unpaced_flags(tables.pacing);
    const bandwidth was = TRY(tables.bandwidths.find(record->ifindex)).value_or(bandwidth{});
    const std::uint64_t rate = limits.egress_rate_bits_per_s, before = was.egress_rate_bits_per_s;
    const bool is_wider = before != 0 && (rate == 0 || rate > before); // the bucket first, or it would drop
    if (!is_wider)
        TRY(shape_and_note(tables, key, *record, limits, shape));
    const RateChanges changes = TRY(put_states(tables, record->ifindex, was, limits));
    TRY(tables.bandwidths.update(record->ifindex, wider(was, limits)));
    notify(*record, changes); // each joins,
    notify(*record, {});      // then each is sent the resulting share
    TRY(tables.bandwidths.update(record->ifindex, limits));
    if (is_wider)
        TRY(shape_and_note(tables, key, *record, limits, shape));
    TRY(tables.endpoints.replace(key, *record));
    TRY(put_flags(tables, *record));
    notify(*record, {}); // connections established meanwhile
    return {};
}

} // namespace podlane
