// SPDX-License-Identifier: MIT
// bandwidth list, show, set, clear: the limits of pods and their counters.
#include "tools/podlanectl/views/bandwidth.hpp"

#include "loader/edt.hpp"
#include "loader/embedded.hpp"
#include "loader/host_veth.hpp"
#include "loader/limit.hpp"
#include "loader/net/namespace.hpp"
#include "loader/notify_sockets.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/shaper.hpp"
#include "maps/abi/limit_math.h"
#include "maps/entries.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "maps/clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>
#include <utility>

namespace podlane::ctl {
namespace {

constexpr std::uint64_t kBitsPerByte = 8;

struct Limit {
    std::string pod, interface;
    std::uint32_t ifindex = 0, flags = 0;
    limit_direction direction = LIMIT_INGRESS;
    std::uint64_t rate = 0, burst = 0; // as given
    limit_state state{};
    std::uint64_t now_ns = 0;
    bool pacing = false; // pl_pace is attached
    bool has_state = false;
    bool shaped = false;
};

Cell burst_cell(const Limit &l) {
    if (l.rate == 0)
        return {"-", l.burst};
    return {output::bits_words(effective_burst(l.rate, l.burst)) + (is_auto_burst(l.rate, l.burst) ? " (auto)" : ""),
            l.burst};
}

Cell backlog_cell(const Limit &l) {
    const std::uint64_t ns = l.state.free_at_ns > l.now_ns ? l.state.free_at_ns - l.now_ns : 0;
    return {output::duration_words(ns), ns};
}

constexpr std::array<Column<Limit>, 20> kBandwidthColumns = {{
    {{"POD", "pod", "pod"}, [](const Limit &l) { return text_cell(l.pod, Tone::strong); }},
    {{"", "host interface", "host_interface"}, [](const Limit &l) { return text_cell(l.interface); }},
    {{"", "ifindex", "ifindex"}, [](const Limit &l) { return number_cell(l.ifindex); }},
    {{"DIRECTION", "direction", "direction"},
     [](const Limit &l) { return text_cell(l.direction == LIMIT_INGRESS ? "ingress" : "egress"); }},
    {{"RATE", "rate", "rate_bits_per_s", Align::right},
     [](const Limit &l) {
         return Cell{l.rate == 0 ? "no limit" : output::rate_words(l.rate), l.rate};
     }},
    {{"BURST", "burst", "burst_bits", Align::right}, burst_cell},
    {{"", "", "effective_burst_bits"}, [](const Limit &l) { return number_cell(effective_burst(l.rate, l.burst)); }},
    {{"LIMITER", "limiter", "limiter"},
     [](const Limit &l) { return text_cell(limiter_words(l.flags, l.direction, l.pacing, l.shaped)); }},
    {{"PACKETS", "packets", "packets", Align::right}, [](const Limit &l) { return number_cell(l.state.packets); }},
    {{"BYTES", "bytes", "bytes", Align::right},
     [](const Limit &l) {
         return Cell{output::bytes_words(l.state.bytes), l.state.bytes};
     }},
    {{"FAIR RATE", "fair rate", "fair_rate_bits_per_s", Align::right},
     [](const Limit &l) {
         const std::uint64_t bits = l.state.fair_bytes_per_s * kBitsPerByte;
         return Cell{output::rate_words(bits), bits};
     }},
    {{"", "paced rate", "paced_rate_bits_per_s"},
     [](const Limit &l) {
         const std::uint64_t bits = l.state.paced_bytes_per_s * kBitsPerByte;
         return Cell{output::rate_words(bits), bits};
     }},
    {{"FLOWS", "flows", "flows", Align::right}, [](const Limit &l) { return number_cell(l.state.flows); }},
    {{"", "backlog", "backlog_ns"}, backlog_cell},
    {{"", "paced", "paced"}, [](const Limit &l) { return number_cell(l.state.paced); }},
    {{"", "delayed", "delayed"}, [](const Limit &l) { return number_cell(l.state.delayed); }},
    {{"MARKED", "marked", "marked", Align::right}, [](const Limit &l) { return number_cell(l.state.marked); }},
    {{"DROPPED", "dropped", "dropped", Align::right}, [](const Limit &l) { return number_cell(l.state.dropped); }},
    {{"", "", "dropped_bytes"}, [](const Limit &l) { return number_cell(l.state.dropped_bytes); }},
    {{"", "", "flags"}, [](const Limit &l) { return output::list_cell(flag_words(l.flags)); }},
}};

Result<std::vector<Limit>> read_limits(const std::vector<EndpointEntry> &entries, bool zeros, const World &world) {
    const auto given = TRY(read_map<std::uint32_t, bandwidth>(world.bpffs, PODLANE_MAP_BANDWIDTHS));
    const auto states = TRY(read_map<limit_key, limit_state>(world.bpffs, PODLANE_MAP_LIMITS));
    const bool pacing = TRY(is_pacing(world.bpffs));
    std::vector<Limit> all;
    for (const auto &[key, value] : entries)
        for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
            Limit one{pod_words(key, value), std::string(field_text(value.host_ifname)), value.ifindex, value.flags,
                      direction};
            one.now_ns = monotonic_ns();
            one.pacing = pacing;
            one.shaped = value.shaped != 0;
            for (const auto &[ifindex, limits] : given)
                if (ifindex == value.ifindex) {
                    one.rate = rate_in(&limits, direction);
                    one.burst = burst_in(&limits, direction);
                }
            for (const auto &[id, state] : states)
                if (id.ifindex == value.ifindex && id.direction == direction) {
                    one.state = state;
                    one.has_state = true;
                }
            if (one.rate != 0 || zeros)
                all.push_back(std::move(one));
        }
    return all;
}

// "10M", "2.5G", "1000000": powers of 1000.
Result<std::uint64_t> read_amount(std::string_view option, const std::string &text) {
    constexpr std::string_view kSuffixes = "kMGT";
    constexpr double kHighest = 1e15;
    double amount = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), amount);
    const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    for (std::size_t i = 0; suffix.size() == 1 && i <= kSuffixes.find(suffix[0]) && i < kSuffixes.size(); ++i)
        amount *= 1000;
    const bool known = suffix.empty() || (suffix.size() == 1 && kSuffixes.find(suffix[0]) != std::string_view::npos);
    if (failed != std::errc{} || !known || !(amount == 0 || (amount >= 1 && amount <= kHighest)))
        return usage_error("--" + std::string(option) + " \"" + text + "\" is not a number of bits",
                           "write 500k, 10M, 2.5G or a whole number");
    return static_cast<std::uint64_t>(amount);
}

Result<void> read_side(const Call &call, Opt rate_option, Opt burst_option, std::string_view name, __u64 &rate,
                       __u64 &burst) {
    const auto &rate_text = call.value(rate_option);
    const auto &burst_text = call.value(burst_option);
    if (rate_text)
        rate = TRY(read_amount(name, *rate_text));
    if (burst_text)
        burst = *burst_text == "auto" ? AUTO_BURST_BITS : TRY(read_amount(std::string(name) + "-burst", *burst_text));
    if (burst_text && rate == 0 && burst != 0)
        return usage_error("--" + std::string(name) + "-burst \"" + *burst_text +
                               "\" is of a direction without a limit",
                           "add --" + std::string(name) + " with a rate, or leave the burst out");
    if (burst_text && rate != 0 && burst == 0)
        return usage_error("--" + std::string(name) + "-burst \"" + *burst_text + "\" would let nothing pass",
                           R"(write a number of bits, or "auto" for 100 ms of the rate)");
    if (rate == 0)
        burst = 0;
    else if (burst == 0)
        burst = AUTO_BURST_BITS;
    return {};
}

} // namespace

Result<void> require_rate(const Call &call, const std::string &verb, const std::string &example) {
    if (call.has(Opt::ingress_rate) || call.has(Opt::egress_rate) || call.has(Opt::ingress_burst) ||
        call.has(Opt::egress_burst))
        return {};
    return usage_error("bandwidth " + verb + " needs a rate or a burst",
                       "as in \"podlanectl bandwidth " + verb + " " + example + "\"");
}

Result<void> warn_of_rates(const Call &call, const World &world) {
    constexpr std::uint64_t kLeast = 1000; // as in a configuration
    for (const auto &[option, name] : {std::pair{Opt::ingress_rate, "ingress"}, std::pair{Opt::egress_rate, "egress"}})
        if (const auto &text = call.value(option)) {
            const std::uint64_t rate = TRY(read_amount(name, *text));
            if (rate != 0 && rate < kLeast)
                std::fprintf(world.err,
                             "warning: --%s is %" PRIu64 " bit/s, less than a packet a second: rates are in bits per "
                             "second, as in 10M\n",
                             name, rate);
        }
    return {};
}

Result<void> read_rates(const Call &call, bandwidth &limits) {
    TRY(read_side(call, Opt::ingress_rate, Opt::ingress_burst, "ingress", limits.ingress_rate_bits_per_s,
                  limits.ingress_burst_bits));
    return read_side(call, Opt::egress_rate, Opt::egress_burst, "egress", limits.egress_rate_bits_per_s,
                     limits.egress_burst_bits);
}

namespace {

Result<std::vector<EndpointEntry>> chosen_endpoints(const Call &call, const World &world) {
    const Selection selection = TRY(Selection::of(call));
    if (selection.selects_all())
        return usage_error("bandwidth " + std::string(call.command->verb) + " needs to know which",
                           "name a pod, container, address or interface");
    return selected_endpoints(selection, world);
}

// The senders a limit of the endpoint slows down: sockets of its own namespace and, for ingress, of the namespaces of
// its network and of the node. A sender that is not notified learns of the limit by a loss.
class Connections {
  public:
    Connections(const SocketNotifier &notifier, std::vector<EndpointEntry> endpoints,
                std::map<std::uint64_t, std::string> namespaces)
        : notifier_(notifier), endpoints_(std::move(endpoints)), namespaces_(std::move(namespaces)) {}

    void notify(const endpoint &limited, const RateChanges &changes) const {
        notifier_.expect(limited.ifindex, limited.flags, changes);
        std::set<std::uint64_t> where{limited.netns_inode};
        if ((limited.flags & INTERFACE_LIMIT_INGRESS) != 0) {
            static_cast<void>(notifier_.run());
            for (const auto &[key, other] : endpoints_)
                if (other.network == limited.network)
                    where.insert(other.netns_inode);
        }
        for (const std::uint64_t inode : where)
            if (const auto path = namespaces_.find(inode); path != namespaces_.end())
                static_cast<void>(notify_inside(path->second));
    }

  private:
    [[nodiscard]] Result<void> notify_inside(const std::string &path) const {
        return net::in_namespace(TRY(net::Namespace::open(path)), [&] { return notifier_.run(); });
    }

    const SocketNotifier &notifier_;
    std::vector<EndpointEntry> endpoints_;
    std::map<std::uint64_t, std::string> namespaces_;
};

Result<NotifyConnections> notify_connections(const Result<SocketNotifier> &notifier, const LimitTables &tables) {
    if (!notifier)
        return NotifyConnections([](const endpoint &, const RateChanges &) {});
    Errors hidden;
    return NotifyConnections(
        [all = Connections(*notifier, TRY(tables.endpoints.entries()), TRY(network_namespaces(hidden)))](
            const endpoint &limited, const RateChanges &changes) { all.notify(limited, changes); });
}

// A socket in the container's namespace. Another one has its number only after the host-side veth is gone with it.
Result<std::optional<net::Netlink>> open_sender(const endpoint &of) {
    Errors hidden;
    auto pod = TRY(open_among(TRY(network_namespaces(hidden)), of, 0));
    if (!pod)
        TRY(std::move(hidden).result());
    net::Netlink host = TRY(net::Netlink::open());
    if (pod && !TRY(find_host_veth(host, of)))
        pod.reset();
    return pod;
}

// In the container's namespace.
Result<bool> shape_sender(const endpoint &of, const bandwidth &limits) {
    const bool wanted = may_shape(of.mode, of.flags);
    if (!wanted && of.shaped == 0)
        return false;
    auto pod = TRY(open_sender(of));
    if (!pod)
        return of.shaped == 0 ? Result<bool>(false)
                              : Error{ErrorCode::missing, "the container's namespace is found neither among mounts nor "
                                                          "among processes, so its qdisc keeps the old limit"};
    if (wanted)
        return put_shaper(*pod, of.pod_ifindex, limits);
    TRY(open_shaper(*pod, of.pod_ifindex));
    return false;
}

Result<int> change(const Call &call, World &world, bool clear) {
    const std::vector<EndpointEntry> entries = TRY(chosen_endpoints(call, world));
    {
        const Lock lock = TRY(Lock::exclusive(world.bpffs));
        const LimitTables tables = TRY(LimitTables::open(world.bpffs));
        auto notifier = SocketNotifier::load(world.bpffs);
        if (!notifier && is_transient(notifier.error().system_errno)) // nothing has changed yet: it can be repeated
            return std::move(notifier).error();
        const NotifyConnections notify = TRY(notify_connections(notifier, tables));
        std::vector<bandwidth> wanted; // of all, before one is changed
        for (const EndpointEntry &one : entries) {
            TRY(refuse_half_deleted(tables.interfaces, one.second));
            const bandwidth now = TRY(tables.bandwidths.find(one.second.ifindex)).value_or(bandwidth{});
            bandwidth limits = clear ? bandwidth{} : now;
            if (!clear)
                TRY(read_rates(call, limits));
            TRY(refuse_to_leave_group(tables, one, now, limits, world));
            wanted.push_back(limits);
        }
        for (std::size_t i = 0; i < entries.size(); ++i)
            TRY(set_limits(tables, entries[i].first, wanted[i], notify, shape_sender));
    }
    const auto changed = chosen_endpoints(call, world); // a limit may have its tools only now, and the pod be gone
    world.print(output::make_table(kBandwidthColumns, TRY(read_limits(changed ? *changed : entries, true, world))));
    return 0;
}

} // namespace

Result<void> enforce_limits(const std::string &root, const endpoint_key &key) {
    const Lock lock = TRY(Lock::exclusive(root));
    const LimitTables tables = TRY(LimitTables::open(root));
    const auto record = TRY(tables.endpoints.find(key));
    const auto limits = record ? TRY(tables.bandwidths.find(record->ifindex)) : std::nullopt;
    if (!limits || is_enforced(*record, *limits))
        return {};
    const auto notifier = SocketNotifier::load(root);
    return set_limits(tables, key, *limits, TRY(notify_connections(notifier, tables)), shape_sender);
}

Result<std::string> limiters_words(const World &world) {
    const std::uint32_t flags = TRY(edt_qdisc()).empty() ? 0U : std::uint32_t{INTERFACE_LIMIT_EDT};
    return limiter_words(flags, LIMIT_INGRESS, TRY(is_pacing(world.bpffs)));
}

Result<output::Table> limit_state_table(const Selection &selection, const World &world) {
    auto entries = selected_endpoints(selection, world);
    if (!entries && !selection.selects_all())
        return std::move(entries).error();
    std::vector<Limit> all = TRY(read_limits(entries ? *entries : std::vector<EndpointEntry>{}, true, world));
    std::erase_if(all, [](const Limit &one) { return !one.has_state; });
    std::set<std::uint32_t> known;
    for (const Limit &one : all)
        known.insert(one.ifindex);
    const auto states = TRY(read_map<limit_key, limit_state>(world.bpffs, PODLANE_MAP_LIMITS));
    for (const auto &[key, state] : states)
        if (selection.selects_all() && !known.contains(key.ifindex)) {
            Limit orphan{"", interface_name(key.ifindex), key.ifindex, 0,
                         key.direction == LIMIT_INGRESS ? LIMIT_INGRESS : LIMIT_EGRESS};
            orphan.state = state;
            all.push_back(std::move(orphan));
        }
    return output::make_table(kBandwidthColumns, all);
}

namespace {

Result<int> bandwidth_list(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    world.print(output::make_table(kBandwidthColumns,
                                   TRY(read_limits(TRY(selected_endpoints(selection, world)), false, world))));
    return 0;
}

Result<int> bandwidth_show(const Call &call, World &world) {
    const std::vector<EndpointEntry> entries = TRY(chosen_endpoints(call, world));
    const auto table = output::make_table(kBandwidthColumns, TRY(read_limits(entries, true, world)));
    world.print_records(table);
    return 0;
}

Result<int> bandwidth_set(const Call &call, World &world) {
    TRY(require_rate(call, "set", "default/web-0 --egress 10M"));
    TRY(warn_of_rates(call, world));
    return change(call, world, false);
}

Result<int> bandwidth_clear(const Call &call, World &world) { return change(call, world, true); }

constexpr Argument kLimitGroup{"GROUP", true, "the name of a limit that pods share"};

constexpr std::array<Command, 6> kBandwidthCommands = {{
    {"list", "List limits and their counters.", kSelect | kRead, kWhich, "", bandwidth_list},
    {"show", "Show everything known about a pod's limits.", kSelect | kRead, kWhich,
     "Bytes are those of frames on the wire: each segment with its headers. The fair rate is one flow's share.",
     bandwidth_show},
    {"set", "Change a pod's limits, from the next packet on.",
     kSelect | kPlain | Opts{Opt::ingress_rate, Opt::ingress_burst, Opt::egress_rate, Opt::egress_burst}, kWhich,
     "Values that are not given stay as they are. The change lasts until DEL.", bandwidth_set, true},
    {"clear", "Remove a pod's limits, from the next packet on.", kSelect | kPlain, kWhich,
     "The change lasts until DEL. A pod of a group keeps a limit in each direction in which the group has a rate.",
     bandwidth_clear, true},
    {"groups", "List limits that pods share, and what is used of them.", kRead | Opts{Opt::network}, Argument{},
     "Guaranteed is the sum of the pods' own limits; wanted is the part of the rate that they use or could use now;\n"
     "at 100 % they want all of it, or more.",
     limit_group_list},
    {"set-group", "Change the rates of a limit that pods share.",
     kPlain | Opts{Opt::network, Opt::ingress_rate, Opt::ingress_burst, Opt::egress_rate, Opt::egress_burst},
     kLimitGroup,
     "Values that are not given stay as they are; 0: nothing is lent. The change lasts until the network's\n"
     "configuration changes the group, or its last pod is gone.",
     limit_group_set, true},
}};

} // namespace

const Noun kBandwidthNoun = {"bandwidth", "bandwidth limits of pods, and their counters", kBandwidthCommands};

} // namespace podlane::ctl
