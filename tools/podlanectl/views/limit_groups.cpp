// SPDX-License-Identifier: MIT
// bandwidth groups, set-group: limits that pods share.
#include "tools/podlanectl/views/bandwidth.hpp"

#include "loader/limit_group.hpp"
#include "loader/pins.hpp"
#include "maps/abi/fair_share.h"
#include "maps/abi/limit_math.h"
#include "maps/clock.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/network.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl {
namespace {

struct Group {
    std::string name, network;
    std::uint32_t number = 0;
    limit_direction direction = LIMIT_INGRESS;
    std::uint64_t rate = 0, guaranteed = 0, pods = 0, wanted = 0;
    limit_state state{};
};

constexpr std::array<Column<Group>, 9> kLimitGroupsColumns = {{
    {{"GROUP", "group", "group"}, [](const Group &g) { return text_cell(g.name, Tone::strong); }},
    {{"NETWORK", "network", "network"}, [](const Group &g) { return text_cell(g.network); }},
    {{"", "number", "number"}, [](const Group &g) { return number_cell(g.number); }},
    {{"DIRECTION", "direction", "direction"},
     [](const Group &g) { return text_cell(g.direction == LIMIT_INGRESS ? "ingress" : "egress"); }},
    {{"RATE", "rate", "rate_bits_per_s", Align::right},
     [](const Group &g) {
         return Cell{g.rate == 0 ? "no limit" : output::rate_words(g.rate), g.rate};
     }},
    {{"PODS", "pods", "pods", Align::right}, [](const Group &g) { return number_cell(g.pods); }},
    {{"GUARANTEED", "guaranteed", "guaranteed_bits_per_s", Align::right},
     [](const Group &g) {
         return Cell{output::rate_words(g.guaranteed), g.guaranteed};
     }},
    {{"WANTED", "wanted", "wanted_percent", Align::right},
     [](const Group &g) {
         const std::uint64_t percent = g.rate == 0 ? 0 : std::min(g.wanted, g.rate) * 100 / g.rate;
         return Cell{std::to_string(percent) + " %", percent};
     }},
    {{"BYTES", "bytes", "bytes", Align::right},
     [](const Group &g) {
         return Cell{output::bytes_words(g.state.bytes), g.state.bytes};
     }},
}};

// Bits per second of a group's rate that a pod of it wants. One that takes all of its limit wants more: the others
// leave no more to it.
std::uint64_t wanted_by(const limit_state &pod, std::uint64_t rate) {
    if (pod.share.weight == 0 || pod.share.slot - slot_of(monotonic_ns()) - 1 >= LIMIT_SLOTS - 1)
        return 0;
    return pod.share.taken >= ONE ? rate : scaled(pod.limit.rate_bits_per_s, pod.share.taken);
}

Result<std::vector<Group>> read_groups(const Call &call, const World &world) {
    const auto networks = network_names(world);
    const auto given = TRY(read_map<std::uint32_t, bandwidth>(world.bpffs, PODLANE_MAP_BANDWIDTHS));
    const auto states = TRY(read_map<limit_key, limit_state>(world.bpffs, PODLANE_MAP_LIMITS));
    const auto limits_of = [&](std::uint32_t number) {
        for (const auto &[key, limits] : given)
            if (key == number)
                return limits;
        return bandwidth{};
    };
    std::vector<Group> all;
    for (const auto &[number, group] : TRY(read_map<std::uint32_t, limit_group>(world.bpffs, PODLANE_MAP_LIMIT_GROUPS)))
        for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
            Group one{std::string(field_text(group.name)), network_words(networks, group.network), number, direction};
            if (call.has(Opt::network) && one.network != *call.value(Opt::network))
                continue;
            const bandwidth shared = limits_of(number);
            one.rate = rate_in(&shared, direction);
            for (const auto &[key, state] : states)
                if (key.direction == direction && key.ifindex == number) {
                    one.state = state;
                } else if (key.direction == direction && state.group == number) {
                    ++one.pods;
                    const bandwidth own = limits_of(key.ifindex);
                    one.guaranteed += rate_in(&own, direction);
                    one.wanted += wanted_by(state, one.rate);
                }
            all.push_back(std::move(one));
        }
    return all;
}

} // namespace

Result<void> refuse_to_leave_group(const LimitTables &tables, const EndpointEntry &pod, const bandwidth &now,
                                   const bandwidth &limits, const World &world) {
    const auto &[key, record] = pod;
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        if (rate_in(&now, direction) == 0 || rate_in(&limits, direction) != 0)
            continue;
        const auto state = TRY(tables.states.find({record.ifindex, direction}));
        const auto shared = state && state->group != 0 ? TRY(tables.bandwidths.find(state->group)) : std::nullopt;
        if (!shared || rate_in(&*shared, direction) == 0)
            continue;
        const auto groups = TRY(TRY(open_limit_groups(world.bpffs, Access::read_only)).entries());
        const auto group = std::ranges::find_if(groups, [&](const auto &one) { return one.first == state->group; });
        const std::string name(group != groups.end() ? field_text(group->second.name) : "?");
        const bool is_of_several =
            std::ranges::count_if(groups, [&](const auto &one) { return field_text(one.second.name) == name; }) > 1;
        const std::string network = is_of_several ? " --network " + std::string(field_text(record.network_name)) : "";
        const std::string option = direction == LIMIT_INGRESS ? " --ingress" : " --egress";
        return usage_error("pod " + pod_words(key, record) + " is in the limit group \"" + name + "\": without" +
                               option + " it would not be held to the group's limit either",
                           "lower its guarantee instead, as in \"podlanectl bandwidth set " +
                               std::string(field_text(record.host_ifname)) + option +
                               " 1M\"; or end the group's limit: podlanectl bandwidth set-group " + name + network +
                               option + " 0");
    }
    return {};
}

Result<int> limit_group_list(const Call &call, World &world) {
    world.print(output::make_table(kLimitGroupsColumns, TRY(read_groups(call, world))));
    return 0;
}

Result<int> limit_group_set(const Call &call, World &world) {
    TRY(require_rate(call, "set-group", "tenant-a --egress 100M"));
    TRY(warn_of_rates(call, world));
    TRY(read_groups(call, world)); // says what is missing before the lock does
    {
        const Lock lock = TRY(Lock::exclusive(world.bpffs));
        const Tables tables = TRY(Tables::open(world.bpffs));
        std::vector<Group> found = TRY(read_groups(call, world));
        std::erase_if(found,
                      [&](const Group &one) { return one.name != call.argument || one.direction != LIMIT_INGRESS; });
        if (found.empty())
            return Error{ErrorCode::missing, "there is no limit group \"" + call.argument + "\"",
                         "see `podlanectl bandwidth groups`; a group is there while it has pods"};
        if (found.size() > 1)
            return usage_error("several networks have a limit group \"" + call.argument + "\"", "add --network");
        bandwidth limits = TRY(tables.bandwidths.find(found[0].number)).value_or(bandwidth{});
        TRY(read_rates(call, limits));
        TRY(tables.bandwidths.update(found[0].number, limits));
        TRY(follow_group_rate(tables, found[0].number));
    }
    return limit_group_list(call, world);
}

} // namespace podlane::ctl
