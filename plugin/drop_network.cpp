// SPDX-License-Identifier: MIT
#include "loader/attach.hpp"
#include "loader/net/link.hpp"
#include "loader/net/nftables.hpp"
#include "loader/pins.hpp"
#include "loader/tracking.hpp"
#include "loader/uplink.hpp"
#include "maps/entries.hpp"
#include "maps/errors.hpp"
#include "plugin/history.hpp"
#include "plugin/limit_group.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/newest_cidrs.hpp"
#include "plugin/others.hpp"
#include "plugin/stale_masquerade.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

// Pods that live, and of which the maps have lost the addresses.
Result<bool> has_others_on_disk(const cni::Request &request, const Tables &tables, std::uint32_t network) {
    const auto is_elsewhere = [&](const endpoint &one) { return one.network != network; };
    return std::ranges::any_of(TRY(others_than(request, tables.endpoints, is_elsewhere)),
                               [&](const AttachmentRecord &record) {
                                   return record.root == request.config.bpffs && network_id(record.network) == network;
                               });
}

// Of endpoints_v1, but for the request's own.
Result<std::vector<endpoint>> other_endpoints(const cni::Request &request, const Tables &tables) {
    const endpoint_key own = TRY(make_endpoint_key(request.container_id, request.ifname));
    std::vector<endpoint> others;
    for (const auto &[key, entry] : TRY(tables.endpoints.entries()))
        if (!same_bytes(key, own))
            others.push_back(entry);
    return others;
}

// Without maps no lock keeps one out. Its record is there before anything else.
Result<bool> is_add_under_way(const cni::Request &request) {
    const ThisNode node = TRY(ThisNode::now());
    const IsGone is_own = is_request_of(request);
    return std::ranges::any_of(TRY(list_all_records(request.config.state_dir)), [&](const AttachmentRecord &record) {
        return !record.entry && !record.only_lease && !record.is_torn && node.has_made(record) && !is_own(record);
    });
}

Result<void> detach_uplink_programs() {
    net::Netlink host = TRY(net::Netlink::open());
    for (const net::Link &link : TRY(net::list_links(host)))
        for (const Hook hook : {Hook::ingress, Hook::egress})
            if (std::ranges::any_of(TRY(attached(link.ifindex, hook)), is_of_uplink))
                TRY(detach(link.ifindex, hook));
    return {};
}

// The network's rules of netfilter: both are tried, whether or not the other succeeds.
Result<void> drop_rules(std::uint8_t masquerade, const std::string &network) {
    Errors errors;
    errors.add(drop_masquerade(masquerade, network));
    errors.add(stop_tracking(network));
    return std::move(errors).result();
}

// By the configuration alone, which does not say by which tool: the node may have got another one since.
Result<void> drop_configured_rules(const cni::Config &config) {
    constexpr std::uint8_t kNone = ENDPOINT_MASQUERADE_NONE;
    constexpr std::uint8_t kEither = ENDPOINT_MASQUERADE_NFTABLES | ENDPOINT_MASQUERADE_IPTABLES;
    return drop_rules(config.ip_masq ? kEither : kNone, config.name);
}

// The network's, which a kernel without nf_tables has not.
Result<bool> has_table(const std::string &network) {
    auto there = is_tracking(network);
    return !there && net::lacks_nf_tables(there.error()) ? Result<bool>(false) : there;
}

// Those in whose place something else is hold nothing of the network's, unless that came just now.
Result<std::optional<Tables>> open_again(const std::string &root) {
    TRY(refuse_other_versions(root));
    std::vector<Unread> unread;
    auto tables = Tables::open_readable(root, unread); // an upgrade may have come first
    for (const Unread &one : unread)
        if (!one.is_replaced() || one.map == PODLANE_MAP_NETWORKS || one.map == PODLANE_MAP_CIDRS)
            return one.error;
    return tables;
}

} // namespace

Result<void> drop_network_if_unused(const cni::Request &request, const Tables &tables, std::uint32_t network,
                                    bool had_limit_group) {
    const Step step(STEP_NETWORK);
    const std::string &root = request.config.bpffs;
    if (!tables.addresses.exists())
        return {}; // nothing says who uses it
    TRY(drop_unused_limit_groups(root, tables, network, had_limit_group));
    const auto in_use = [&](const Tables &now) -> Result<bool> {
        if (TRY(now.addresses.any_key([&](const address_key &key) { return key.network == network; })))
            return true;
        return has_others_on_disk(request, now, network);
    };
    if (TRY(in_use(tables)))
        return {};
    // An ADD under way holds the lock shared until its addresses are there.
    const Lock lock = TRY(Lock::exclusive(root));
    const auto now = TRY(open_again(root));
    if (!now || !now->addresses.exists() || TRY(in_use(*now)))
        return {};
    const auto unknown = TRY(others_than(request, now->endpoints, [](const endpoint &) { return true; }));
    const auto is_elsewhere = [&](const AttachmentRecord &one) { return one.root != root; };
    const auto is_of_network = [&](const AttachmentRecord &one) {
        return is_elsewhere(one) && network_id(one.network) == network;
    };
    const auto entry = TRY(now->networks.find(network));
    const auto others = TRY(other_endpoints(request, *now));
    // Pods that live, and that the maps have lost: a later call goes by the network's entry, if there is one.
    if (TRY(has_unknown_others(request, &now->endpoints, unknown)))
        return {};
    const auto is_in_network = [&](const endpoint &one) { return one.network == network; };
    if (std::ranges::none_of(unknown, is_of_network)) {
        if (entry)
            TRY(drop_rules(entry->masquerade, std::string(field_text(entry->name))));
        else if (network_id(request.config.name) == network && std::ranges::none_of(others, is_in_network)) // lost
            TRY(drop_configured_rules(request.config));
    }
    UplinkTables uplinks = TRY(UplinkTables::open(root, Access::if_present));
    uplinks.is_shared = std::ranges::any_of(unknown, is_elsewhere);
    TRY(remove_network_from_uplinks(uplinks, network));
    if (!uplinks.uplinks.exists() && others.empty() && unknown.empty()) // its pin is lost
        TRY(detach_uplink_programs());
    forget_newest_cidrs(request.config, entry ? std::string(field_text(entry->name)) : request.config.name);
    TRY(put_cidrs(*now, network, {}));
    TRY(drop_own_address_rules(request.config.state_dir, is_request_of(request)));
    TRY(now->networks.remove(network));
    return {};
}

Result<void> drop_network_without_maps(const cni::Request &request, const std::optional<endpoint> &entry) {
    const Step step(STEP_NETWORK);
    if (TRY(has_unknown_others(request, nullptr, TRY(others_than(request)))))
        return {};
    const std::uint32_t network = entry ? entry->network : network_id(request.config.name);
    const auto is_free = [&](const auto &uses) -> Result<bool> { // before each step: a child may take seconds
        return !TRY(is_add_under_way(request)) && std::ranges::none_of(TRY(others_than(request)), uses);
    };
    if (TRY(is_free([&](const AttachmentRecord &one) { return one.entry->network == network; }))) {
        forget_newest_cidrs(request.config, entry ? std::string(field_text(entry->network_name)) : request.config.name);
        TRY(entry ? drop_rules(entry->masquerade, std::string(field_text(entry->network_name)))
                  : drop_configured_rules(request.config));
    }
    if (!TRY(is_free([](const AttachmentRecord &) { return false; })))
        return {};
    TRY(drop_own_address_rules(request.config.state_dir, is_request_of(request)));
    return TRY(is_free([](const AttachmentRecord &) { return true; })) ? detach_uplink_programs() : Result<void>{};
}

Result<void> drop_restored_rules(const cni::Request &request, const AttachmentRecord &earlier, bool has_maps) {
    if (!earlier.entry)
        return {};
    const std::string network(field_text(earlier.entry->network_name));
    const bool is_there = TRY(may_masquerade(earlier.entry->masquerade, network, addresses_in(*earlier.entry)));
    if (has_maps)
        return is_there ? forget_stale_masquerade(network, request.config.bpffs, request.config.state_dir)
                        : Result<void>{};
    return is_there || TRY(has_table(network)) ? drop_network_without_maps(request, earlier.entry) : Result<void>{};
}

} // namespace podlane
