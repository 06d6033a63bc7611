// SPDX-License-Identifier: MIT
#include "plugin/stale_masquerade.hpp"

#include "loader/pins.hpp"
#include "maps/entries.hpp"
#include "maps/errors.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/others.hpp"
#include "plugin/plan.hpp"

#include <algorithm>
#include <cstring>
#include <set>

namespace podlane {
namespace {

struct IsBefore {
    bool operator()(const ip_addr &a, const ip_addr &b) const { return std::memcmp(&a, &b, sizeof a) < 0; }
};

// The needs of the network's pods.
struct Needed {
    std::set<ip_addr, IsBefore> addresses{}; // in nftables
    bool has_iptables = false;

    void add(const endpoint &one) {
        if (one.masquerade == ENDPOINT_MASQUERADE_NFTABLES)
            std::ranges::copy(addresses_in(one), std::inserter(addresses, addresses.end()));
        has_iptables = has_iptables || one.masquerade == ENDPOINT_MASQUERADE_IPTABLES;
    }
};

Result<Needed> needed_in(const std::string &network, const Tables &tables,
                         const std::vector<AttachmentRecord> &records) {
    const std::uint32_t id = network_id(network);
    const ThisNode node = TRY(ThisNode::now());
    Needed needed;
    for (const auto &[key, entry] : TRY(tables.endpoints.entries()))
        if (entry.network == id)
            needed.add(entry);
    for (const AttachmentRecord &record : records)
        if (record.entry && record.entry->network == id && node.has_made(record))
            needed.add(*record.entry);
    return needed;
}

Result<bool> has_unknown(const Tables &tables, const std::string &state_directory) {
    const auto nobody = [](const AttachmentRecord &) { return false; };
    return has_unknown_others({}, &tables.endpoints, TRY(others_on_disk(state_directory, nobody)));
}

} // namespace

Result<std::vector<ip_addr>> stale_masqueraded(const std::string &network, const Tables &tables,
                                               const std::vector<AttachmentRecord> &records) {
    std::vector<ip_addr> stale = TRY(masqueraded_addresses(network)); // first: an ADD inserts its endpoint before them
    if (stale.empty())
        return stale;
    const Needed needed = TRY(needed_in(network, tables, records));
    std::erase_if(stale, [&](const ip_addr &addr) { return needed.addresses.contains(addr); });
    return stale;
}

Result<std::vector<ip_addr>> settled_stale_masqueraded(const std::string &network, const std::string &root,
                                                       const std::string &state_directory) {
    const Tables tables = TRY(Tables::open(root, Access::read_only));
    auto stale = TRY(stale_masqueraded(network, tables, TRY(list_all_records(state_directory))));
    if (!stale.empty() && TRY(has_unknown(tables, state_directory)))
        stale.clear();
    return stale;
}

Result<void> forget_stale_masquerade(const std::string &network, const std::string &root,
                                     const std::string &state_directory) {
    const Lock alone = TRY(Lock::exclusive(root));
    Errors errors;
    if (const auto stale = settled_stale_masqueraded(network, root, state_directory))
        errors.add(stop_masquerading(ENDPOINT_MASQUERADE_NFTABLES, network, *stale));
    else
        errors.add(stale.error());
    const Tables tables = TRY(Tables::open(root, Access::read_only));
    const Needed needed = TRY(needed_in(network, tables, TRY(list_all_records(state_directory))));
    if (!needed.has_iptables && !TRY(has_unknown(tables, state_directory)))
        errors.add(drop_masquerade(ENDPOINT_MASQUERADE_IPTABLES, network));
    return std::move(errors).result();
}

} // namespace podlane
