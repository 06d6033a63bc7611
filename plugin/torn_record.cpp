// SPDX-License-Identifier: MIT
#include "plugin/torn_record.hpp"

#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "loader/pins.hpp"
#include "maps/errors.hpp"
#include "plugin/cni/config.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/ipam.hpp"
#include "plugin/log.hpp"
#include "plugin/remains.hpp"
#include "plugin/state.hpp"
#include "plugin/turn.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace podlane {
namespace {

Result<void> add_networks_of(std::vector<AttachmentRecord> records, TornRecords &into) {
    std::ranges::sort(records, std::ranges::greater(), &AttachmentRecord::created_ns);
    std::set<std::string> seen;
    for (const AttachmentRecord &newest : records)
        if (seen.insert(newest.network).second)
            for (cni::Request &one : TRY(requests_with_lease(request_of(newest, newest.state_directory), newest)))
                into.add_network(std::move(one));
    return {};
}

// A file whose name no ADD has chosen is foreign.
Result<bool> is_left_alone(const AttachmentRecord &torn) {
    const auto key = make_endpoint_key(torn.container_id, torn.ifname);
    if (!key || !cni::is_valid_name(torn.container_id) || torn.ifname.empty())
        return true;
    if (TRY(is_add_under_way(torn)))
        return true;
    const auto endpoints = open_endpoints(torn.root, Access::read_only);
    if (!endpoints && endpoints.error().code != ErrorCode::missing)
        return endpoints.error();
    if (endpoints && TRY(endpoints->find(*key)))
        return true;
    net::Netlink host = TRY(net::Netlink::open());
    return TRY(find_any_own_link(host, request_of(torn, torn.state_directory))).has_value();
}

// Since it was found, an ADD may have written a whole record.
Result<bool> is_still_dead(const AttachmentRecord &torn) {
    Errors unread;
    std::vector<AttachmentRecord> now;
    TRY(AttachmentRecords(torn.state_directory, torn.root).list(unread, &now));
    const bool is_still_torn = std::ranges::any_of(now, [&](const AttachmentRecord &one) {
        return one.container_id == torn.container_id && one.ifname == torn.ifname;
    });
    return is_still_torn && !TRY(is_left_alone(torn));
}

// Otherwise why it is not sure that none has it any more.
Result<std::optional<std::string>> release_wherever_it_is(const AttachmentRecord &torn, TornRecords &all) {
    std::optional<std::string> why = "no IPAM plugin on record has released its lease";
    std::optional<std::string> missing;
    Errors errors;
    std::erase_if(all.networks, [&](const cni::Request &network) {
        cni::Request request = network;
        request.container_id = torn.container_id;
        request.ifname = torn.ifname;
        if (const auto not_there = ipam::why_missing(request)) {
            missing = not_there->message;
            return false;
        }
        bool refused = false;
        const auto removed = ipam::remove(request, refused);
        const bool hangs = !removed && removed.error().code == ErrorCode::try_again_later;
        if (removed)
            why.reset();
        else if (hangs)
            all.hanging = removed.error().message;
        else if (refused)
            log(cni::Log::Level::warning, removed.error().message + ": it has no lease of the container");
        else
            errors.add(removed);
        return hangs;
    });
    TRY(std::move(errors).result());
    if (!all.hanging.empty())
        return std::optional(all.hanging);
    return missing ? missing : why;
}

} // namespace

void TornRecords::add_network(cni::Request network) {
    if (network.config.ipam_type == "dhcp" || cni::names_itself_for_ipam(network.config)) // each ADD refuses them
        return;
    network.netns.clear();
    network.args.clear();
    network.ipam_args.clear();
    network.ipam_config.clear();
    network.raw_config = cni::without_arguments(network.raw_config);
    const auto text_of = [](const cni::Request &one) {
        const auto ipam = cni::find_ipam(one.raw_config);
        return ipam ? ipam->text : std::string();
    };
    const bool is_there = std::ranges::any_of(networks, [&](const cni::Request &one) {
        return one.config.name == network.config.name && text_of(one) == text_of(network);
    });
    if (!is_there)
        networks.push_back(std::move(network));
}

Result<TornRecords> find_torn_records(const std::string &state_directory, const std::string &root) {
    TornRecords found;
    Errors unread;
    auto whole = TRY(AttachmentRecords(state_directory, root).list(unread, &found.records));
    if (found.records.empty())
        return found;
    TRY(std::move(unread).result()); // it may be a network's only record
    if (auto shared = refuse_other_netns(root, TRY(net::own_netns())); !shared)
        return shared.error().code == ErrorCode::plugin_not_available ? TornRecords{}
                                                                      : Result<TornRecords>(shared.error());
    for (AttachmentRecord &one : std::exchange(found.records, {})) {
        one.root = root;
        if (!TRY(is_left_alone(one)))
            found.records.push_back(std::move(one));
    }
    TRY(add_networks_of(std::move(whole), found));
    return found;
}

Result<std::optional<std::string>> release_torn_record(const AttachmentRecord &torn, TornRecords &all) {
    const std::optional<std::string> changed = "an ADD or DEL of it has come since";
    if (all.networks.empty())
        return std::optional(all.hanging.empty() ? "no other record names an IPAM plugin" : all.hanging);
    const auto turn = take_turn_of_del(request_of(torn, torn.state_directory));
    if (!TRY(is_still_dead(torn)))
        return changed;
    if (auto why = TRY(release_wherever_it_is(torn, all)))
        return why;
    const auto lock = TRY(keep_upgrades_out(torn.root)); // and whoever changes records
    if (!TRY(is_still_dead(torn)))
        return changed;
    TRY(AttachmentRecords(torn.state_directory, torn.root).erase(torn.container_id, torn.ifname));
    return std::optional<std::string>{};
}

} // namespace podlane
