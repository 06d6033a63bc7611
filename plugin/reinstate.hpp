// SPDX-License-Identifier: MIT
// Judges an attachment that the maps know by the request of its ADD, for doctor and repair, and restores
// what is missing.
#pragma once

#include "loader/net/address.hpp"
#include "loader/net/namespace.hpp"
#include "loader/record.hpp"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/network_keys.hpp"
#include "plugin/verify.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace podlane {

// As CHECK: `entry` is that of endpoints_v1, `pod` a socket in the container's namespace. ErrorCode::check_failed says
// what is wrong.
Result<void> verify_recorded(const AttachmentRecord &record, const endpoint &entry, net::Netlink &pod,
                             Verifier &verifier);

// Restores whatever of the attachment is missing, in the order of an ADD: the network, map entries, programs, the
// container's addresses, neighbours and routes, the host's, limits, NAT. Existing objects stay as they are, so that
// packets under way are not lost. Continues after an error; the first one is returned.
Result<void> reinstate(const AttachmentRecord &record, LivingPods &living);

// The container's own setting of its interface, which removes all of the family while it is off.
Result<void> switch_ipv6_on(const net::Namespace &pod, const std::string &ifname);

// Replaces one that duplicate address detection keeps from being used.
Result<void> put_usable_address(net::Netlink &pod, std::uint32_t ifindex, const net::Address &address);

// Masquerades an endpoint without a record by the configuration of another pod of its network; none if no record has
// it, or it takes more than that (the iptables rules are by the lease's subnet).
Result<std::function<Result<void>()>> masquerading_as_others(const endpoint &entry, const std::string &root,
                                                             const std::vector<AttachmentRecord> &records,
                                                             const std::shared_ptr<LivingPods> &living);

// Runs the repair of something that was found missing of this endpoint, beside the runtime's calls: what an ADD under
// way is about to make is not made first, and what was restored while a DEL removed the endpoint is removed again (as
// by that DEL, if it ends later).
Result<void> repair_living(const std::string &root, const endpoint_key &key, const endpoint &record,
                           const std::optional<AttachmentRecord> &disk, const std::function<Result<void>()> &repair);

} // namespace podlane
