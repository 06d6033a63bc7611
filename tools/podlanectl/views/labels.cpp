// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/labels.hpp"

#include "loader/pins.hpp"
#include "plugin/cni/isolation.hpp"
#include "plugin/groups.hpp"
#include "plugin/state.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "maps/text.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace podlane::ctl {
namespace {

using Pairs = std::map<std::string, std::string, std::less<>>;

bool is_key(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_key_character); }

Cell pairs_cell(const std::string &lines) {
    std::string text;
    output::Object members;
    for (const auto &[key, value] : pairs_in(lines)) {
        text += (text.empty() ? "" : ", ") + key + "=" + value;
        members.emplace_back(key, value);
    }
    return {text.empty() ? "-" : text, std::move(members)};
}

constexpr std::array<Column<AttachmentRecord>, 4> kLabelsColumns = {{
    {{"", "node", "node"}, [](const AttachmentRecord &r) { return text_cell(r.node_name); }},
    {{"", "groups", "groups"}, [](const AttachmentRecord &r) { return list_cell(recorded_groups(r)); }},
    {{"", "labels", "labels"}, [](const AttachmentRecord &r) { return pairs_cell(r.labels); }},
    {{"", "annotations", "annotations"}, [](const AttachmentRecord &r) { return pairs_cell(r.annotations); }},
}};

} // namespace

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
    LabelSelector selector;
    for (bool last = false; !last;) {
        const std::size_t comma = text.find(',');
        last = comma == std::string_view::npos;
        std::string_view term = text.substr(0, comma);
        text.remove_prefix(last ? text.size() : comma + 1);
        Requirement one;
        const std::size_t equals = term.find('=');
        if (equals == std::string_view::npos) {
            one.any_value = true;
            one.negated = term.starts_with('!');
            one.key = term.substr(one.negated ? 1 : 0);
        } else {
            one.negated = equals != 0 && term[equals - 1] == '!';
            one.key = term.substr(0, equals - (one.negated ? 1 : 0));
            const bool twice = !one.negated && term.substr(equals).starts_with("==");
            one.value = term.substr(equals + (twice ? 2 : 1));
        }
        if (!is_key(one.key))
            return usage_error("--selector: \"" + std::string(term) + "\" is no requirement of a label",
                               "write KEY=VALUE, KEY!=VALUE, KEY or !KEY, separated by commas");
        selector.all_.push_back(std::move(one));
    }
    return selector;
}

bool LabelSelector::matches(const AttachmentRecord &record) const {
    return std::ranges::all_of(all_, [&](const Requirement &one) {
        const auto said = said_of(record, one.key);
        return (said && (one.any_value || said->value == one.value)) != one.negated;
    });
}

std::optional<SaidOfPod> said_of(const AttachmentRecord &record, std::string_view key) {
    const Pairs labels = pairs_in(record.labels);
    if (const auto found = labels.find(key); found != labels.end())
        return SaidOfPod{true, found->second};
    const Pairs annotations = pairs_in(record.annotations);
    if (const auto found = annotations.find(key); found != annotations.end())
        return SaidOfPod{false, found->second};
    return std::nullopt;
}

Result<std::set<std::string>> parse_label_keys(std::string_view text) {
    std::set<std::string> keys;
    for (bool last = false; !last;) {
        const std::size_t comma = text.find(',');
        last = comma == std::string_view::npos;
        const std::string key(text.substr(0, comma));
        text.remove_prefix(last ? text.size() : comma + 1);
        if (!is_key(key))
            return usage_error("--labels: \"" + key + "\" is no key of a label", "write KEY,KEY");
        keys.insert(key);
    }
    return keys;
}

std::vector<std::string> recorded_groups(const AttachmentRecord &record) { return groups_in(record); }

Result<AttachmentRecord> recorded(const AttachmentRecords &records, const EndpointEntry &entry) {
    auto record = TRY(
        records.find(std::string(field_text(entry.first.container_id)), std::string(field_text(entry.first.ifname))));
    return record ? *std::move(record) : AttachmentRecord{};
}

Result<output::Table> recorded_table(const std::vector<EndpointEntry> &entries, const std::string &state_directory,
                                     const World &world) {
    const AttachmentRecords records(state_directory, world.bpffs);
    std::vector<AttachmentRecord> rows;
    rows.reserve(entries.size());
    for (const EndpointEntry &entry : entries)
        rows.push_back(TRY(recorded(records, entry)));
    return output::make_table(kLabelsColumns, rows);
}

namespace {

struct GroupRow {
    std::string name;
    std::vector<std::string> members;
};

constexpr std::array<Column<GroupRow>, 3> kGroupColumns = {{
    {{"GROUP", "group", "group"}, [](const GroupRow &r) { return text_cell(r.name, Tone::strong); }},
    {{"ENDPOINTS", "endpoints", "endpoints", Align::right},
     [](const GroupRow &r) { return number_cell(r.members.size()); }},
    {{"PODS", "pods", "pods"}, [](const GroupRow &r) { return list_cell(r.members); }},
}};

Result<int> group_list(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    const AttachmentRecords records(call.value(Opt::state_dir).value_or(kStateDirectory), world.bpffs);
    std::map<std::string, std::vector<std::string>> members;
    for (const EndpointEntry &entry : TRY(selected_endpoints(selection, world)))
        for (const std::string &group : recorded_groups(TRY(recorded(records, entry))))
            members[group].push_back(pod_words(entry.first, entry.second));
    std::vector<GroupRow> rows;
    rows.reserve(members.size());
    for (auto &[name, pods] : members)
        rows.push_back({name, std::move(pods)});
    world.print(output::make_table(kGroupColumns, rows));
    return 0;
}

// Of whole containers: all interfaces of each of them.
Result<int> change_groups(const Call &call, World &world, bool add) {
    const Selection selection = TRY(Selection::of_options(call));
    if (selection.selects_all())
        return usage_error("group " + std::string(add ? "add" : "remove") + " needs to know whose",
                           "as in \"podlanectl group add tenant-a --pod web-0\"");
    if (!cni::is_group_name(call.argument))
        return usage_error("\"" + call.argument + "\" is no name of a group", "see `podlanectl group list`");
    std::set<std::string> containers;
    for (const auto &[key, record] : TRY(selected_endpoints(selection, world)))
        containers.emplace(field_text(key.container_id));
    const Lock lock = TRY(Lock::exclusive(world.bpffs));
    const AttachmentRecords records(call.value(Opt::state_dir).value_or(kStateDirectory), world.bpffs);
    TRY(change_membership(records, TRY(Tables::open(world.bpffs)), containers, call.argument, add));
    return 0;
}

Result<int> group_add(const Call &call, World &world) { return change_groups(call, world, true); }
Result<int> group_remove(const Call &call, World &world) { return change_groups(call, world, false); }

constexpr Argument kGroup{"GROUP", true, "name of a group, as \"group list\" prints it"};

constexpr std::array<Command, 3> kLabelsCommands = {{
    {"list", "List groups and the pods in them.", kSelect | kRead | Opts{Opt::state_dir}, kWhich,
     "The groups are those of the key \"groups\" at each pod's ADD, and later changes.", group_list},
    {"add", "Make pods members of a group, from the next packet on.", kSelect | kPlain | Opts{Opt::state_dir}, kGroup,
     "All interfaces of the containers become members. The change lasts until DEL.", group_add, true},
    {"remove", "End pods' membership in a group, from the next packet on.", kSelect | kPlain | Opts{Opt::state_dir},
     kGroup, "Connections that are no longer allowed end. The change lasts until DEL.", group_remove, true},
}};

} // namespace

const Noun kGroupNoun = {"group", "groups of pods", kLabelsCommands};

} // namespace podlane::ctl
