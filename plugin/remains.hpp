// SPDX-License-Identifier: MIT
// All that is known of an attachment that is to be removed: from its record on disk, the maps, and its host-side veth.
//
// A source that cannot be read does not end the removal: the error is collected, and the others count. The records stay
// then, so that a later DEL finds the rest.
#pragma once

#include "loader/net/link.hpp"
#include "loader/net/netlink.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "maps/errors.hpp"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <string>

namespace podlane {

struct Remains {
    cni::Request request; // the runtime's, completed by what the ADD was called with
    std::optional<AttachmentRecord> disk;
    std::optional<Tables> tables{};
    std::optional<endpoint> entry{};   // from endpoints_v1, else from the disk
    std::optional<net::Link> orphan{}; // host-side veth without an entry
    bool is_elsewhere = false;         // the root is that of another network namespace
    bool has_all_maps = true;          // none failed to open that may hold something of it

    [[nodiscard]] bool is_known() const { return disk || entry || orphan; }
    // By its name and alias: all that says that there may be a lease.
    [[nodiscard]] bool is_only_interface() const { return orphan && !disk && !entry; }
    // Without a readable configuration nothing says how to release the lease, now or later.
    [[nodiscard]] bool keeps_interface() const { return is_only_interface() && !request.unreadable; }
};

// Without a record the root is one whose maps know the attachment. ErrorCode::decode_failure if the configuration
// cannot be read, and nothing is known.
Result<Remains> find_remains(const cni::Request &given, const endpoint_key &key, net::Netlink &host, Errors &errors);

// Opens the maps and looks for the rest, under the lock of the root. ErrorCode::try_again_later if the maps are of
// another version: their entries would stay behind, and lead packets astray.
Result<void> look_for_entries(Remains &remains, const endpoint_key &key, net::Netlink &host, Errors &errors);

// Neither records, be they torn, nor the maps of any root, nor the alias of an interface name the attachment: it is
// removed already, or no ADD made anything of it. An error if one of these cannot be read.
Result<bool> is_unheard_of(const Remains &remains);

// Whether there may be a lease that no record on disk names. An interface alone does not say it: then there is taken to
// be none if the configuration can be that of a chain.
bool may_have_unrecorded_lease(const Remains &remains);

// Whether a repair has inserted its first entry, or its last ones.
Result<bool> has_come_back(const std::string &root, const endpoint &entry);

// Whether an ADD has written to the record since: each time it does, the time changes.
bool has_newer_record(const Remains &remains);

// By name, which is a hash of the identity, and by the alias, which spells it out. A host-side veth whose ADD died
// before it set the alias has none.
Result<std::optional<net::Link>> find_own_link(net::Netlink &host, const cni::Request &request);
// Among all links, if no other source knows the attachment: `hostInterfacePrefix` may have been edited.
Result<std::optional<net::Link>> find_any_own_link(net::Netlink &host, const cni::Request &request);

// By its number in an entry of this boot, and its name, its other end or its alias, whatever the others are by now.
Result<std::optional<net::Link>> find_recorded_link(net::Netlink &host, const cni::Request &request,
                                                    const endpoint &entry);

// With it the other end goes, to whatever namespace that was moved: the container must not keep an address whose lease
// is released.
Result<void> remove_pod_end(const cni::Request &request, const endpoint &entry);

// Keeps an upgrade from carrying entries over while they are being removed; nothing if there is no root.
Result<std::optional<Lock>> keep_upgrades_out(const std::string &root);

} // namespace podlane
