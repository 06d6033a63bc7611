#include "loader/limit.hpp"

#include "loader/departure.hpp"
#include "loader/pace.hpp"

#include <algorithm>

namespace podlane {
namespace {

// As in bpf/rate.h.
constexpr std::uint64_t kAutoBurst = 0x7fffffff;
constexpr std::uint64_t kAutoPerSecond = 10;
constexpr std::uint64_t kLeastBurst = std::uint64_t{5} * 1514 * 8;

std::uint32_t flags_with(std::uint32_t flags, const bandwidth &limits) {
    flags &= ~static_cast<std::uint32_t>(INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EGRESS);
    if (limits.ingress_rate_bits_per_s != 0)
        flags |= INTERFACE_LIMIT_INGRESS;
    if (limits.egress_rate_bits_per_s != 0)
        flags |= INTERFACE_LIMIT_EGRESS;
    return flags;
}

Result<void> put_missing_states(const LimitTables &tables, std::uint32_t ifindex) {
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        auto put = tables.states.put({ifindex, static_cast<std::uint32_t>(direction)}, {}, Put::must_not_exist);
        if (!put && put.error().code != ErrorCode::already_exists)
            return put;
    }
    return {};
}

// The last thing: the programs look at a limit only where the flags say that there is one.
Result<void> put_flags(const LimitTables &tables, const endpoint &record) {
    if (auto known = TRY(tables.interfaces.find(record.ifindex))) {
        known->flags = record.flags;
        TRY(tables.interfaces.put(record.ifindex, *known, Put::must_exist));
    }
    for (const ip_addr &addr :
         std::span(record.addresses).first(std::min<std::size_t>(record.address_count, ENDPOINT_ADDRESSES))) {
        const address_key key{record.network, addr};
        auto known = TRY(tables.addresses.find(key));
        if (!known || known->ifindex != record.ifindex)
            continue;
        known->flags = record.flags;
        TRY(tables.addresses.put(key, *known, Put::must_exist));
    }
    return {};
}

} // namespace

bool is_auto_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    return burst_bits >= kAutoBurst || (rate_bits_per_s != 0 && burst_bits / rate_bits_per_s >= 1);
}

std::uint64_t effective_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits) {
    if (is_auto_burst(rate_bits_per_s, burst_bits))
        burst_bits = rate_bits_per_s / kAutoPerSecond;
    return std::max(burst_bits, kLeastBurst);
}

std::string limiter_words(std::uint32_t flags, limit_direction direction, bool pacing) {
    const bool ingress = direction == LIMIT_INGRESS;
    const std::uint32_t unpaced = ingress ? INTERFACE_LIMIT_UNPACED_INGRESS : INTERFACE_LIMIT_UNPACED_EGRESS;
    std::string words = pacing && (flags & unpaced) == 0 ? "pace, " : "";
    if (ingress && (flags & INTERFACE_LIMIT_TIMED) != 0)
        words += "edt, ";
    return words + "bucket";
}

std::uint32_t unpaced_flags(bool pacing) {
    return pacing ? 0U : std::uint32_t{INTERFACE_LIMIT_UNPACED_INGRESS} | INTERFACE_LIMIT_UNPACED_EGRESS;
}

Result<LimitTables> LimitTables::open(const std::string &root) {
    return LimitTables{TRY(open_endpoints(root, Access::read_write)),    TRY(open_interfaces(root, Access::read_write)),
                       TRY(open_addresses(root, Access::read_write)),    TRY(open_bandwidths(root, Access::read_write)),
                       TRY(open_limit_states(root, Access::read_write)), is_pacing(root)};
}

Result<void> set_limits(const LimitTables &tables, const endpoint_key &key, const bandwidth &limits) {
    auto record = TRY(tables.endpoints.find(key));
    if (!record)
        return Error{ErrorCode::missing, "the endpoint is gone"};
    record->flags = flags_with(record->flags, limits);
    if (limits.ingress_rate_bits_per_s != 0 && (record->flags & INTERFACE_LIMIT_UNTIMED) == 0 &&
        TRY(put_fq(record->ifindex)))
        record->flags |= INTERFACE_LIMIT_TIMED;
    record->flags |= unpaced_flags(tables.pacing);
    TRY(put_missing_states(tables, record->ifindex));
    TRY(tables.bandwidths.put(record->ifindex, limits));
    TRY(tables.endpoints.put(key, *record, Put::must_exist));
    return put_flags(tables, *record);
}

} // namespace podlane
