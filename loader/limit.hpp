// SPDX-License-Identifier: MIT
// The limits of a live endpoint: what they amount to, and how they are changed between two packets.
#pragma once

#include "maps/tables.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace podlane {

// Whether a burst is "auto": that of the kubelet, or one of more than a second at the rate.
bool is_auto_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits);
// The burst in effect: 100 ms of the rate if it is "auto", at least five frames.
std::uint64_t effective_burst(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits);

// The tools that hold a limit of an endpoint with these flags, as "pace, edt, bucket".
std::string limiter_words(std::uint32_t flags, limit_direction direction, bool pacing, bool shaped = false);

// The flags by which the programs know that nobody is paced.
std::uint32_t unpaced_flags(bool pacing);

// Whether the endpoint's flags have the programs look up its limits: a call that was killed may have come no further
// than to the limits.
bool is_enforced(const endpoint &record, const bandwidth &limits);

struct LimitTables {
    Endpoints endpoints;
    Interfaces interfaces;
    Addresses addresses;
    Bandwidths bandwidths;
    LimitStates states;
    bool pacing; // pl_pace is at work

    static Result<LimitTables> open(const std::string &root);
};

// Of a limit that is there, in bits per second; 0 if it stays what it was.
struct RateChange {
    std::uint64_t was = 0, rate = 0;
};
using RateChanges = std::array<RateChange, 2>; // by limit_direction

// Announces the limits of an endpoint to its existing connections. Its flags include limits that are not enforced yet.
using NotifyConnections = std::function<void(const endpoint &, const RateChanges &)>;

// Sets the shaper of the endpoint to these limits, if it has one or can have one. Whether it does
// then.
using ShapeSender = std::function<Result<bool>(const endpoint &, const bandwidth &)>;

// From the next packet on; a rate of 0 is no limit. Counters stay. Needs the exclusive lock of the root.
Result<void> set_limits(
    const LimitTables &tables, const endpoint_key &key, const bandwidth &limits,
    const NotifyConnections &notify = [](const endpoint &, const RateChanges &) {},
    const ShapeSender &shape = [](const endpoint &of, const bandwidth &) { return of.shaped != 0; });

} // namespace podlane
