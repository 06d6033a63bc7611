// SPDX-License-Identifier: MIT
#include "plugin/entries.hpp"

#include "maps/clock.hpp"
#include "maps/entries.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/plan.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace podlane {
namespace {

std::vector<std::pair<exempt_key, std::uint32_t>> exempts_of(const cni::Config &config, std::uint32_t ifindex) {
    std::vector<std::pair<exempt_key, std::uint32_t>> all;
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        const cni::LimitedPrefixes &of = config.limited_prefixes[direction];
        const auto add = [&](const Prefix &prefix, bool shaped) {
            all.emplace_back(make_exempt_key(ifindex, direction, prefix), make_prefix_value(prefix, shaped));
        };
        for (const Prefix &prefix : of.unshaped)
            add(prefix, false);
        if (!of.shaped.empty())
            for (const Prefix &everything : {Prefix{ipv4_from_host_order(0), 0}, Prefix{}})
                add(everything, false);
        for (const Prefix &prefix : of.shaped)
            add(prefix, true);
    }
    return all;
}

std::vector<sender_key> sender_keys_of(const endpoint &record, std::uint32_t node_netns) {
    std::vector<sender_key> keys;
    for (const ip_addr &addr : addresses_in(record)) {
        keys.push_back({static_cast<std::uint32_t>(record.netns_inode), addr});
        keys.push_back({node_netns, addr});
    }
    return keys;
}

// Each group once.
std::vector<std::string> accepted_by(const cni::Config &config) {
    std::vector<std::string> accepted = config.groups;
    const auto is_member = [&](const std::string &group) {
        return std::ranges::find(config.groups, group) != config.groups.end();
    };
    const auto add = [&](const std::string &group) {
        if (std::ranges::find(accepted, group) == accepted.end())
            accepted.push_back(group);
    };
    for (const auto &[a, b] : config.isolation.allow) {
        if (is_member(a))
            add(b);
        if (is_member(b))
            add(a);
    }
    return accepted;
}

std::optional<IsolationEntry> isolation_of(const cni::Config &config) {
    const cni::Isolation &wanted = config.isolation;
    if (config.groups.empty() && wanted.by == cni::IsolateBy::none)
        return std::nullopt;
    IsolationEntry entry{.groups = config.groups};
    if (wanted.by == cni::IsolateBy::none)
        return entry;
    if (wanted.host)
        entry.flags |= ISOLATION_HOST;
    if (wanted.outside)
        entry.flags |= ISOLATION_OUTSIDE;
    if (wanted.by != cni::IsolateBy::group)
        return entry;
    entry.accepted = accepted_by(config);
    for (const auto &[prefix, group] : wanted.group_cidrs)
        entry.remotes.emplace_back(prefix, std::ranges::find(entry.accepted, group) != entry.accepted.end());
    return entry;
}

std::uint16_t netns_id_of(const Plan &plan) {
    constexpr std::int32_t kMost = std::numeric_limits<std::uint16_t>::max() - 1;
    return plan.netns_id && *plan.netns_id <= kMost ? static_cast<std::uint16_t>(*plan.netns_id + 1) : 0;
}

Result<void> put_name(std::span<char> field, const std::string &name, const std::string &key) {
    if (set_field(field, name))
        return {};
    return Error{ErrorCode::invalid_environment,
                 key + " " + cni::json::quote(name) + " has " + std::to_string(name.size()) + " bytes, at most " +
                     std::to_string(field.size() - 1) + " are supported",
                 "shorten it"};
}

} // namespace

Result<endpoint> make_endpoint(const cni::Request &request, const Plan &plan) {
    endpoint record{};
    record.created_ns = realtime_ns();
    record.netns_inode = plan.netns_inode;
    record.netns_id = netns_id_of(plan);
    record.ifindex = plan.ifindex;
    record.pod_ifindex = plan.pod_ifindex;
    record.network = network_id(request.config.name);
    record.mtu = plan.mtu;
    record.flags = plan.flags;
    record.mode = static_cast<std::uint8_t>(plan.mode);
    record.attach = attach_of(plan.hook_kind);
    record.masquerade = static_cast<std::uint8_t>(plan.masquerade);
    record.shaped = plan.pod_qdisc.empty() ? 0 : 1;
    record.address_count = static_cast<std::uint8_t>(plan.addresses.size());
    record.allowed_source_count = static_cast<std::uint8_t>(request.config.allowed_sources.size());
    std::ranges::copy(plan.pod_mac, record.pod_mac);
    std::ranges::copy(plan.host_mac, record.host_mac);
    record.link_local = plan.link_local;
    std::ranges::copy(plan.addresses, record.addresses);
    TRY(put_name(record.host_ifname, plan.host_ifname, "host-side interface"));
    TRY(put_name(record.network_name, request.config.name, "\"name\""));
    TRY(put_name(record.pod_name, request.pod.name, "K8S_POD_NAME"));
    TRY(put_name(record.pod_namespace, request.pod.ns, "K8S_POD_NAMESPACE"));
    TRY(put_name(record.pod_uid, request.pod.uid, "K8S_POD_UID"));
    return record;
}

void add_entries_at(std::uint32_t ifindex, const std::vector<source_route> &all, SourceEntries &entries) {
    std::array<std::uint32_t, 2> numbers{};
    // Each caller gets the same order.
    std::vector<source_route> sorted = all;
    std::ranges::sort(sorted, [](const source_route &a, const source_route &b) {
        return a.ifindex != b.ifindex ? a.ifindex < b.ifindex : std::memcmp(&a.source, &b.source, sizeof a.source) < 0;
    });
    const bool alone = std::ranges::all_of(all, [&](const source_route &one) { return one.ifindex == ifindex; });
    const auto has_more = [&](bool ipv4) {
        return std::ranges::count_if(all, [&](const source_route &one) {
                   return one.ifindex == ifindex && is_ipv4(one.source) == ipv4;
               }) > 1;
    };
    for (const source_route &route : sorted) {
        const bool ipv4 = is_ipv4(route.source);
        if (route.ifindex != ifindex)
            entries.routes.push_back({{ifindex, route.source}, route});
        else if (alone || !has_more(ipv4))
            continue;
        std::uint32_t &number = numbers[ipv4 ? 1 : 0];
        if (++number <= SOURCE_SLOTS)
            entries.slots.push_back({{ifindex, ipv4 ? 1U : 0U, number}, route});
    }
}

bool has_slot(const SourceEntries &entries, const source_slot_key &key) {
    return std::ranges::any_of(entries.slots, [&](const auto &entry) { return same_bytes(entry.first, key); });
}

EndpointEntries entries_of(const cni::Config &config, const endpoint &record, std::uint32_t node_netns) {
    EndpointEntries entries{.exempts = exempts_of(config, record.ifindex)};
    if (const auto &limits = config.bandwidth)
        entries.limits =
            bandwidth{limits->ingress_rate, limits->ingress_burst, limits->egress_rate, limits->egress_burst};
    if (!config.limit_group.empty())
        entries.limit_group = limit_group_number(record.network, config.limit_group);
    entries.keeps_paths = (record.flags & INTERFACE_EGRESS_ROUTE) != 0;
    entries.allowed_sources = config.allowed_sources;
    entries.isolation = isolation_of(config);
    entries.interface_entry = make_interface(record);
    for (const ip_addr &addr : addresses_in(record))
        entries.addresses.push_back({{record.network, addr}, make_address(record)});
    entries.senders = sender_keys_of(record, node_netns);
    return entries;
}

} // namespace podlane
