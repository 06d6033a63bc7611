// SPDX-License-Identifier: MIT
// counter list: packets and bytes of each endpoint, by reason.
#include "tools/podlanectl/views/counter.hpp"

#include "maps/clock.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace podlane::ctl {
namespace {

struct CounterRow {
    const EndpointCounters &of;
    const std::string &interface;
    std::size_t reason;
    count counted;
    std::optional<count> each_second{}; // since the last reading
};

constexpr std::uint64_t kBits = 8;

Cell packets_rate_cell(const CounterRow &r) {
    return r.each_second ? number_cell(r.each_second->packets) : text_cell("");
}

Cell bits_rate_cell(const CounterRow &r) {
    if (!r.each_second)
        return text_cell("");
    const std::uint64_t bits = r.each_second->bytes * kBits;
    return {output::rate_words(bits), bits};
}

// Empty if there is no earlier reading, or the counter was reset.
std::optional<count> rate_of(const count &now, const CounterRow &row, const Before &before, std::uint64_t now_ns) {
    constexpr std::uint64_t kMsPerS = 1000;
    const auto then = before.counted.find({row.of.ifindex, row.reason});
    const std::uint64_t ms = (now_ns - before.at_ns) / kNsPerMs;
    if (then == before.counted.end() || ms == 0 || then->second.first > now.packets || then->second.second > now.bytes)
        return std::nullopt;
    return count{(now.packets - then->second.first) * kMsPerS / ms, (now.bytes - then->second.second) * kMsPerS / ms};
}

Tone tone_of(std::size_t reason) {
    const std::string_view kind = reason_kind_name(reason);
    return kind == "drop" ? Tone::bad : kind == "fast" ? Tone::good : Tone::plain;
}

constexpr std::array<Column<CounterRow>, 11> kCounterColumns = {{
    {{"POD", "", "pod"}, [](const CounterRow &r) { return text_cell(r.of.pod, Tone::strong); }},
    {{"", "", "container_id"}, [](const CounterRow &r) { return text_cell(r.of.container_id); }},
    {{"INTERFACE", "", "host_interface"}, [](const CounterRow &r) { return text_cell(r.interface); }},
    {{"", "", "ifindex"}, [](const CounterRow &r) { return number_cell(r.of.ifindex); }},
    {{"KIND", "", "kind"},
     [](const CounterRow &r) { return text_cell(reason_kind_name(r.reason), tone_of(r.reason)); }},
    {{"REASON", "", "reason"}, [](const CounterRow &r) { return text_cell(reason_name(r.reason), tone_of(r.reason)); }},
    {{"PACKETS", "", "packets", Align::right}, [](const CounterRow &r) { return number_cell(r.counted.packets); }},
    {{"BYTES", "", "bytes", Align::right},
     [](const CounterRow &r) {
         return Cell{output::bytes_words(r.counted.bytes), r.counted.bytes};
     }},
    {{"MEANING", "", ""}, [](const CounterRow &r) { return text_cell(reason_sentence(r.reason), Tone::faint); }},
    {{"PACKETS/S", "", "packets_per_s", Align::right}, packets_rate_cell},
    {{"RATE", "", "bits_per_s", Align::right}, bits_rate_cell},
}};

constexpr std::array<Column<std::size_t>, 4> kReasonColumns = {{
    {{"", "", "number"}, [](const std::size_t &r) { return number_cell(r); }},
    {{"REASON", "", "reason"}, [](const std::size_t &r) { return text_cell(reason_name(r), tone_of(r)); }},
    {{"KIND", "", "kind"}, [](const std::size_t &r) { return text_cell(reason_kind_name(r), tone_of(r)); }},
    {{"MEANING", "", "meaning"}, [](const std::size_t &r) { return text_cell(reason_sentence(r)); }},
}};

Result<bool> sum_counters(const OpenMap &map, EndpointCounters &of) {
    counter_shares all{};
    if (!TRY(detail::find(map.fd.get(), map.path, &of.ifindex, &all)))
        return false;
    of.total = sum_of(all);
    return true;
}

} // namespace

Result<std::vector<EndpointCounters>> read_counters(const std::vector<EndpointEntry> &entries, bool orphans,
                                                    const World &world) {
    const OpenMap map =
        TRY(open_live_map(world.bpffs, PODLANE_MAP_COUNTERS, sizeof(std::uint32_t), sizeof(counter_shares)));
    std::vector<EndpointCounters> all;
    for (const auto &[key, value] : entries) {
        EndpointCounters &of = all.emplace_back();
        of.ifindex = value.ifindex;
        of.pod = pod_words(key, value);
        of.container_id = field_text(key.container_id);
        TRY(sum_counters(map, of));
    }
    if (!orphans)
        return all;
    std::unordered_set<std::uint32_t> owned;
    for (const EndpointCounters &of : all)
        owned.insert(of.ifindex);
    for (const Bytes &bytes : TRY(walk_keys(map))) {
        EndpointCounters of;
        std::memcpy(&of.ifindex, bytes.data(), sizeof of.ifindex);
        if (!owned.contains(of.ifindex) && TRY(sum_counters(map, of)))
            all.push_back(of);
    }
    return all;
}

output::Table counter_table(const std::vector<EndpointCounters> &all, bool zeros, const Before *before,
                            std::uint64_t now_ns) {
    std::vector<std::string> interfaces;
    interfaces.reserve(all.size());
    for (const EndpointCounters &of : all)
        interfaces.push_back(interface_name(of.ifindex));
    std::vector<CounterRow> rows;
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t reason = 0; reason < COUNTER_REASONS; ++reason) {
            const count &counted = all[i].total.by_reason[reason];
            const bool nameless = reason >= kReasons.size() || reason == REASON_NONE;
            if (counted.packets == 0 && (!zeros || nameless))
                continue;
            CounterRow row{all[i], interfaces[i], reason, counted};
            if (before != nullptr)
                row.each_second = rate_of(counted, row, *before, now_ns);
            rows.push_back(row);
        }
    output::Table table = output::make_table(kCounterColumns, rows);
    if (before == nullptr)
        for (output::Heading &heading : table.headings)
            if (heading.field.ends_with("_per_s"))
                heading.title = {};
    return table;
}

namespace {

Result<int> counter_list(const Call &call, World &world) {
    if (call.has(Opt::reasons)) {
        std::vector<std::size_t> reasons;
        for (std::size_t reason = REASON_NONE + 1; reason < kReasons.size(); ++reason)
            reasons.push_back(reason);
        world.print(output::make_table(kReasonColumns, reasons));
        return 0;
    }
    const Selection selection = TRY(Selection::of(call));
    const std::vector<EndpointEntry> entries = TRY(selected_endpoints(selection, world));
    const auto all = TRY(read_counters(entries, selection.selects_all(), world));
    if (!call.has(Opt::watch)) {
        world.print(counter_table(all, call.has(Opt::all)));
        return 0;
    }
    world.print(counter_table(all, call.has(Opt::all), &world.before, world.monotonic_ns));
    world.before = {world.monotonic_ns, {}};
    for (const EndpointCounters &of : all)
        for (std::size_t reason = 0; reason < COUNTER_REASONS; ++reason)
            world.before.counted[{of.ifindex, reason}] = {of.total.by_reason[reason].packets,
                                                          of.total.by_reason[reason].bytes};
    return 0;
}

constexpr std::array<Command, 1> kCounterCommands = {{
    {"list", "List packets and bytes by endpoint and reason, summed over the CPUs.",
     kSelect | kRead | Opts{Opt::all, Opt::reasons}, kWhich,
     "Kinds: fast (fast path), host (slow path, through the host stack), answer (answered by the program), drop.\n"
     "A packet on the fast path between two pods counts at both.",
     counter_list},
}};

} // namespace

const Noun kCounterNoun = {"counter", "packets and bytes of each pod, by reason", kCounterCommands};

} // namespace podlane::ctl
