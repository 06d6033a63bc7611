// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/selection.hpp"

#include "maps/entries.hpp"
#include "tools/podlanectl/views/labels.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>
#include <tuple>

namespace podlane::ctl {
namespace {

bool is_pod(const endpoint &value, std::string_view wanted) {
    const std::size_t slash = wanted.find('/');
    if (slash == std::string_view::npos)
        return field_text(value.pod_name) == wanted;
    return field_text(value.pod_namespace) == wanted.substr(0, slash) &&
           field_text(value.pod_name) == wanted.substr(slash + 1);
}

bool has_address(const endpoint &value, const ip_addr &wanted) {
    const auto is_wanted = [&](const ip_addr &addr) { return addr == wanted; };
    return !is_none(wanted) && (is_wanted(value.link_local) || std::ranges::any_of(addresses_in(value), is_wanted));
}

// As the whole name, not as the beginning of one.
bool is_named(const EndpointEntry &entry, std::string_view wanted) {
    const auto &[key, value] = entry;
    if (const Result<ip_addr> addr = parse_ip(wanted); addr && has_address(value, *addr))
        return true;
    return is_pod(value, wanted) || field_text(key.container_id) == wanted || field_text(value.host_ifname) == wanted;
}

bool is_any(const EndpointEntry &entry, std::string_view wanted) {
    return is_named(entry, wanted) || field_text(entry.first.container_id).starts_with(wanted);
}

auto order(const EndpointEntry &entry) {
    const auto &[key, value] = entry;
    return std::tuple(field_text(value.pod_namespace), field_text(value.pod_name), field_text(key.container_id),
                      field_text(key.ifname));
}

} // namespace

Result<Selection> Selection::of(const Call &call) {
    Selection selection;
    selection.pod_ = call.value(Opt::pod);
    selection.namespace_ = call.value(Opt::ns);
    selection.container_ = call.value(Opt::container);
    selection.interface_ = call.value(Opt::interface);
    selection.network_ = call.value(Opt::network);
    if (!call.argument.empty())
        selection.any_ = call.argument;
    if (const auto &text = call.value(Opt::address)) {
        Result<ip_addr> addr = parse_ip(*text);
        if (!addr)
            return usage_error("--address \"" + *text + "\" is not an IP address", "write 192.0.2.1 or 2001:db8::1",
                               addr.error());
        selection.address_ = *addr;
    }
    selection.state_directory_ = call.value(Opt::state_dir).value_or(kStateDirectory);
    selection.labels_ = call.value(Opt::selector);
    if (selection.labels_)
        TRY(LabelSelector::parse(*selection.labels_));
    selection.words_ = call.argument;
    for (const Option &option : options())
        if (kSelect.has(option.id) && call.has(option.id))
            selection.words_ +=
                (selection.words_.empty() ? "--" : " --") + std::string(option.name) + " " + *call.value(option.id);
    return selection;
}

Result<Selection> Selection::of_options(const Call &call) {
    Call options = call;
    options.argument.clear();
    return of(options);
}

Selection Selection::of_word(std::string word) {
    Selection selection;
    selection.words_ = word;
    selection.any_ = std::move(word);
    return selection;
}

bool Selection::matches(const EndpointEntry &entry) const {
    const auto &[key, value] = entry;
    return (!pod_ || is_pod(value, *pod_)) && (!namespace_ || field_text(value.pod_namespace) == *namespace_) &&
           (!container_ || field_text(key.container_id).starts_with(*container_)) &&
           (!interface_ || field_text(value.host_ifname) == *interface_) &&
           (!network_ || field_text(value.network_name) == *network_) && (!address_ || has_address(value, *address_)) &&
           (!any_ || is_any(entry, *any_));
}

bool Selection::names(const EndpointEntry &entry) const { return any_ && is_named(entry, *any_); }

Error Selection::no_match() const {
    return {ErrorCode::missing, "no endpoint matches " + words_, "\"podlanectl endpoint list\" shows all of them"};
}

Result<void> Selection::keep_labelled(std::vector<EndpointEntry> &entries, const World &world) const {
    if (!labels_)
        return {};
    const LabelSelector selector = TRY(LabelSelector::parse(*labels_));
    const AttachmentRecords records(state_directory_, world.bpffs);
    std::vector<EndpointEntry> kept;
    for (const EndpointEntry &entry : entries)
        if (selector.matches(TRY(recorded(records, entry))))
            kept.push_back(entry);
    entries = std::move(kept);
    return {};
}

Result<std::vector<EndpointEntry>> selected_endpoints(const Selection &selection, const World &world) {
    std::vector<EndpointEntry> entries = TRY(read_map<endpoint_key, endpoint>(world.bpffs, PODLANE_MAP_ENDPOINTS));
    std::erase_if(entries, [&](const EndpointEntry &entry) { return !selection.matches(entry); });
    if (std::ranges::any_of(entries, [&](const EndpointEntry &entry) { return selection.names(entry); }))
        std::erase_if(entries, [&](const EndpointEntry &entry) { return !selection.names(entry); });
    TRY(selection.keep_labelled(entries, world));
    if (entries.empty() && !selection.selects_all())
        return selection.no_match();
    // An entry is more than a kilobyte: pointers are sorted, and each entry is moved once.
    std::vector<const EndpointEntry *> sorted;
    sorted.reserve(entries.size());
    for (const EndpointEntry &entry : entries)
        sorted.push_back(&entry);
    std::ranges::sort(sorted, [](const auto *a, const auto *b) { return order(*a) < order(*b); });
    std::vector<EndpointEntry> result;
    result.reserve(sorted.size());
    for (const EndpointEntry *entry : sorted)
        result.push_back(*entry);
    return result;
}

Result<Chosen> Chosen::of(const Selection &selection, const World &world) {
    Chosen chosen;
    chosen.all_ = selection.selects_all();
    if (!chosen.all_)
        for (const auto &[key, value] : TRY(selected_endpoints(selection, world))) {
            chosen.ifindexes_.insert(value.ifindex);
            chosen.networks_.insert(value.network);
        }
    return chosen;
}

bool Chosen::has(std::uint32_t ifindex, std::uint32_t network) const {
    return all_ || (ifindex != 0 ? ifindexes_.contains(ifindex) : networks_.contains(network));
}

} // namespace podlane::ctl
