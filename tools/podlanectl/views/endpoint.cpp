// SPDX-License-Identifier: MIT
// endpoint list, endpoint show.
#include "tools/podlanectl/views/endpoint.hpp"

#include "loader/attach.hpp"
#include "loader/record.hpp"
#include "plugin/reinstate.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/counter.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/labels.hpp"
#include "loader/net/link.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <net/if.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace podlane::ctl {
namespace {

using output::Value;

struct EndpointRow {
    const endpoint_key &key;
    const endpoint &value;
    std::uint64_t now_ns;
};

Cell words_cell(std::string_view name, std::string_view sentence) {
    Cell cell = text_cell(name);
    if (!sentence.empty())
        cell.text = sentence;
    return cell;
}

Cell container_cell(const EndpointRow &row) {
    const std::string id(field_text(row.key.container_id));
    return {id.substr(0, 12) + ":" + std::string(field_text(row.key.ifname)), id};
}

Cell fast_path_cell(const EndpointRow &row) {
    const std::string words = fast_path_words(row.value.flags);
    return text_cell(words, words == "off" ? Tone::warning : Tone::good);
}

Cell created_cell(const EndpointRow &row) {
    const std::string utc = output::utc_words(row.value.created_ns);
    return {utc + " (" + output::age_words(row.value.created_ns, row.now_ns) + " ago)", utc};
}

// The columns of endpoint list (title) and the lines of endpoint show (label); JSON has all fields in both.
constexpr std::array<Column<EndpointRow>, 24> kEndpointColumns = {{
    {{"POD", "", ""}, [](const EndpointRow &r) { return text_cell(pod_words(r.key, r.value), Tone::strong); }},
    {{"", "pod", "pod_name"},
     [](const EndpointRow &r) { return text_cell(field_text(r.value.pod_name), Tone::strong); }},
    {{"", "namespace", "pod_namespace"},
     [](const EndpointRow &r) { return text_cell(field_text(r.value.pod_namespace)); }},
    {{"", "pod uid", "pod_uid"}, [](const EndpointRow &r) { return text_cell(field_text(r.value.pod_uid)); }},
    {{"NETWORK", "network", "network"},
     [](const EndpointRow &r) { return text_cell(field_text(r.value.network_name)); }},
    {{"", "", "network_id"}, [](const EndpointRow &r) { return number_cell(r.value.network); }},
    {{"INTERFACE", "host interface", "host_interface"},
     [](const EndpointRow &r) { return text_cell(field_text(r.value.host_ifname)); }},
    {{"", "ifindex", "ifindex"}, [](const EndpointRow &r) { return number_cell(r.value.ifindex); }},
    {{"CONTAINER", "", ""}, container_cell},
    {{"", "container", "container_id"}, [](const EndpointRow &r) { return text_cell(field_text(r.key.container_id)); }},
    {{"", "its interface", "ifname"}, [](const EndpointRow &r) { return text_cell(field_text(r.key.ifname)); }},
    {{"", "its ifindex", "pod_ifindex"}, [](const EndpointRow &r) { return number_cell(r.value.pod_ifindex); }},
    {{"", "netns inode", "netns_inode"}, [](const EndpointRow &r) { return number_cell(r.value.netns_inode); }},
    {{"ADDRESSES", "addresses", "addresses"}, [](const EndpointRow &r) { return list_cell(address_words(r.value)); }},
    {{"", "link-local", "link_local"}, [](const EndpointRow &r) { return text_cell(ip_words(r.value.link_local)); }},
    {{"", "pod MAC", "pod_mac"}, [](const EndpointRow &r) { return text_cell(mac_words(r.value.pod_mac)); }},
    {{"", "host MAC", "host_mac"}, [](const EndpointRow &r) { return text_cell(mac_words(r.value.host_mac)); }},
    {{"", "MTU", "mtu"}, [](const EndpointRow &r) { return number_cell(r.value.mtu); }},
    {{"AGE", "", "created_ns", Align::right},
     [](const EndpointRow &r) {
         return Cell{output::age_words(r.value.created_ns, r.now_ns), r.value.created_ns};
     }},
    {{"", "created", "created"}, created_cell},
    {{"HOOK", "hook", "hook"}, [](const EndpointRow &r) { return text_cell(attach_name(r.value.attach)); }},
    {{"", "mode", "mode"},
     [](const EndpointRow &r) { return words_cell(mode_name(r.value.mode), mode_sentence(r.value.mode)); }},
    {{"FAST PATH", "fast path", "fast_path"}, fast_path_cell},
    {{"", "flags", "flags"}, [](const EndpointRow &r) { return list_cell(flag_words(r.value.flags)); }},
}};

// The additional fields of endpoint show.
struct Details {
    const endpoint &value;
    std::optional<net::Link> link{};
    std::optional<Result<void>> verified{}; // none: not compared
    std::vector<std::string> allowed_sources{};
    std::optional<bandwidth> limits{};
    std::vector<Attached> ingress{}, egress{}; // Podlane's programs on the hooks of the host-side veth
};

Cell link_cell(const Details &row) {
    if (row.value.ifindex == 0)
        return {"none: the interface has no host-side veth; rules in the container do the source routing", "none"};
    if (!row.link)
        return {"gone: no interface of this network namespace has ifindex " + std::to_string(row.value.ifindex), "gone",
                Tone::bad};
    if (row.link->name != field_text(row.value.host_ifname))
        return {"ifindex " + std::to_string(row.value.ifindex) + " is now " + row.link->name, "other", Tone::bad};
    if (!row.link->up)
        return {"set down", "down", Tone::bad};
    return (row.link->flags & IFF_RUNNING) != 0
               ? Cell{"up", "up", Tone::good}
               : Cell{"up, but the container's interface is down", "no-carrier", Tone::warning};
}

// Marks a value that differs from the one set at ADD.
Cell against_link(Value raw, const std::string &is, const std::string &was) {
    if (is == was)
        return {is, std::move(raw)};
    return {is + " (was set to " + was + ")", std::move(raw), Tone::warning};
}

Cell link_mtu_cell(const Details &row) {
    if (!row.link)
        return {};
    return against_link(row.link->mtu, std::to_string(row.link->mtu), std::to_string(row.value.mtu));
}

Cell link_mac_cell(const Details &row) {
    if (!row.link)
        return {};
    const std::string mac = to_string(row.link->mac);
    const bool own = row.value.mode != ENDPOINT_AFTER_MAIN; // else it may be that of the bridge
    return against_link(mac, mac, own ? mac_words(row.value.host_mac) : mac);
}

Cell limit_cell(const std::optional<bandwidth> &limits, __u64 bandwidth::*rate, __u64 bandwidth::*burst) {
    if (!limits || (*limits).*rate == 0)
        return {};
    return {output::rate_words((*limits).*rate) + ", burst " + output::bits_words((*limits).*burst),
            output::Object{{"rate_bits_per_s", (*limits).*rate}, {"burst_bits", (*limits).*burst}}};
}

Cell programs_cell(const std::vector<Attached> &programs, bool link_there) {
    if (programs.empty())
        return {link_there ? "none" : "", output::Array{}, Tone::bad};
    std::string text;
    output::Array items;
    for (const Attached &one : programs) {
        const std::string_view kind = one.kind == HookKind::tcx ? "tcx" : "clsact";
        text += (text.empty() ? "" : ", ") + one.name + " (" + std::string(kind) + ", id " +
                std::to_string(one.program_id) + ")";
        items.emplace_back(output::Object{{"name", one.name}, {"hook", kind}, {"id", one.program_id}});
    }
    return {text, items, programs.size() == 1 ? Tone::plain : Tone::warning};
}

// What CHECK would say.
Cell plan_cell(const Details &row) {
    if (!row.verified)
        return {"not compared: its record on disk or its container is not found", "unknown", Tone::warning};
    if (*row.verified)
        return {"everything is as planned", "as-planned", Tone::good};
    const std::string &what = row.verified->error().message;
    return {what, what, Tone::bad};
}

constexpr std::array<Column<Details>, 9> kDetails = {{
    {{"", "plan", "plan"}, plan_cell},
    {{"", "allowed sources", "allowed_sources"}, [](const Details &d) { return list_cell(d.allowed_sources); }},
    {{"", "ingress limit", "ingress_limit"},
     [](const Details &d) {
         return limit_cell(d.limits, &bandwidth::ingress_rate_bits_per_s, &bandwidth::ingress_burst_bits);
     }},
    {{"", "egress limit", "egress_limit"},
     [](const Details &d) {
         return limit_cell(d.limits, &bandwidth::egress_rate_bits_per_s, &bandwidth::egress_burst_bits);
     }},
    {{"", "link now", "link"}, link_cell},
    {{"", "link MTU", "link_mtu"}, link_mtu_cell},
    {{"", "link MAC", "link_mac"}, link_mac_cell},
    {{"", "ingress program", "ingress_programs"},
     [](const Details &d) { return programs_cell(d.ingress, d.link.has_value()); }},
    {{"", "egress program", "egress_programs"},
     [](const Details &d) { return programs_cell(d.egress, d.link.has_value()); }},
}};

output::Table identity_table(std::span<const EndpointEntry> entries, const World &world,
                             output::Wanted wanted = output::Wanted::all) {
    std::vector<EndpointRow> rows;
    rows.reserve(entries.size());
    for (const auto &[key, value] : entries)
        rows.push_back({key, value, world.realtime_ns});
    return output::make_table(kEndpointColumns, rows, wanted);
}

// The columns of `right` after those of `left`, row by row.
output::Table beside(output::Table left, output::Table right) {
    left.headings.insert(left.headings.end(), right.headings.begin(), right.headings.end());
    for (std::size_t i = 0; i < left.rows.size(); ++i)
        std::ranges::move(right.rows[i], std::back_inserter(left.rows[i]));
    return left;
}

// By the verifier of CHECK and doctor. None if the endpoint is not on disk, or its container is not found.
class Verification {
  public:
    // `hidden`: why not all namespaces are known.
    Verification(AttachmentRecords records, const Tables &tables, net::Netlink &host,
                 std::map<std::uint64_t, std::string> namespaces, Result<void> hidden)
        : records_(std::move(records)), verifier_(host, tables), namespaces_(std::move(namespaces)),
          hidden_(std::move(hidden)) {}

    Result<std::optional<Result<void>>> of(const endpoint_key &key, const endpoint &value) {
        const auto record =
            TRY(records_.find(std::string(field_text(key.container_id)), std::string(field_text(key.ifname))));
        auto pod = record ? TRY(open_among(namespaces_, value, record->netns_cookie)) : std::nullopt;
        if (record && !pod && !hidden_)
            return std::optional(hidden_);
        return pod ? std::optional(verify_recorded(*record, value, *pod, verifier_)) : std::nullopt;
    }

  private:
    AttachmentRecords records_;
    Verifier verifier_;
    std::map<std::uint64_t, std::string> namespaces_;
    Result<void> hidden_;
};

Result<output::Table> details_table(const std::vector<EndpointEntry> &entries, const std::string &state_directory,
                                    const World &world) {
    const auto sources = TRY(read_map<allowed_source_key, std::uint32_t>(world.bpffs, PODLANE_MAP_SOURCES));
    const auto limits = TRY(read_map<std::uint32_t, bandwidth>(world.bpffs, PODLANE_MAP_BANDWIDTHS));
    const auto tables = Tables::open(world.bpffs, Access::read_only); // some pins may be missing
    net::Netlink host = TRY(net::Netlink::open());
    std::optional<Verification> verification;
    if (tables) {
        Errors hidden;
        auto namespaces = TRY(network_namespaces(hidden));
        verification.emplace(AttachmentRecords(state_directory, world.bpffs), *tables, host, std::move(namespaces),
                             std::move(hidden).result());
    }
    std::vector<Details> rows;
    for (const auto &[key, value] : entries) {
        const auto link = value.ifindex == 0 ? std::nullopt : TRY(net::find_link(host, value.ifindex));
        Details row{value, link};
        if (verification)
            row.verified = TRY(verification->of(key, value));
        if (row.link) {
            row.ingress = TRY(attached(value.ifindex, Hook::ingress));
            row.egress = TRY(attached(value.ifindex, Hook::egress));
        }
        for (const auto &[source, unused] : sources)
            if (source.ifindex == make_allowed_source_key(value.ifindex, {}).ifindex)
                row.allowed_sources.push_back(to_string(allowed_prefix(source)));
        std::ranges::sort(row.allowed_sources);
        for (const auto &[ifindex, limit] : limits)
            if (ifindex == value.ifindex)
                row.limits = limit;
        rows.push_back(std::move(row));
    }
    return output::make_table(kDetails, rows);
}

} // namespace

output::Table endpoint_table(const std::vector<EndpointEntry> &entries, const World &world) {
    return identity_table(entries, world);
}

namespace {

Result<int> endpoint_list(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    const auto entries = TRY(selected_endpoints(selection, world));
    if (!world.json) {
        world.print(identity_table(entries, world, output::Wanted::titled));
        return 0;
    }
    const std::string state_directory = call.value(Opt::state_dir).value_or(kStateDirectory);
    world.print(beside(identity_table(entries, world), TRY(recorded_table(entries, state_directory, world))));
    return 0;
}

// One endpoint is shown by a prefix of its container ID; several are a misunderstanding.
Result<void> refuse_ambiguous(const Selection &selection, const std::string &word,
                              const std::vector<EndpointEntry> &entries) {
    std::set<std::string_view> containers;
    for (const EndpointEntry &entry : entries)
        if (!selection.names(entry))
            containers.insert(field_text(entry.first.container_id));
    if (word.empty() || containers.size() < 2)
        return {};
    std::string which;
    for (const std::string_view one : containers)
        which += (which.empty() ? "" : ", ") + std::string(one);
    return Error{ErrorCode::missing,
                 "\"" + word + "\" is ambiguous: container IDs begin with it: " + which.substr(0, 200),
                 "write more of the container ID, or NAMESPACE/POD"};
}

Result<int> endpoint_show(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    if (selection.selects_all())
        return usage_error("endpoint show needs to know which", "name a pod, container, address or interface, as in "
                                                                "\"podlanectl endpoint show default/web-0\"");
    const std::vector<EndpointEntry> entries = TRY(selected_endpoints(selection, world));
    TRY(refuse_ambiguous(selection, call.argument, entries));
    const std::string state_directory = call.value(Opt::state_dir).value_or(kStateDirectory);
    const output::Table table =
        beside(beside(identity_table(entries, world), TRY(recorded_table(entries, state_directory, world))),
               TRY(details_table(entries, state_directory, world)));
    const std::vector<EndpointCounters> counters = TRY(read_counters(entries, false, world));
    output::Array items = output::table_value(table);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const output::Table counts = counter_table({counters[i]}, false);
        if (world.json) {
            std::get<output::Object>(items[i].data).emplace_back("counters", output::table_value(counts));
            continue;
        }
        world.print(i == 0 ? "" : "\n");
        world.print(output::record_text({table.headings, {table.rows[i]}}, world.style));
        if (!counts.rows.empty())
            world.print("\n" + output::table_text(counts, world.style));
    }
    if (world.json)
        world.print(output::json_text(items));
    return 0;
}

constexpr std::array<Command, 2> kEndpointCommands = {{
    {"list", "List endpoints.", kSelect | kRead | Opts{Opt::state_dir}, kWhich,
     "Options combine: an endpoint must match all of them. --json prints every field.", endpoint_list},
    {"show", "Show everything known about an endpoint, and its link and programs as they are now.",
     kSelect | kRead | Opts{Opt::state_dir}, kWhich, "Times, rates and flags are in words; --json has the raw values.",
     endpoint_show},
}};

} // namespace

const Noun kEndpointNoun = {"endpoint", "pod interfaces: identity, location, attachment", kEndpointCommands};

} // namespace podlane::ctl
