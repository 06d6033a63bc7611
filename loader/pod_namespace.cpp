// SPDX-License-Identifier: MIT
#include "loader/pod_namespace.hpp"

namespace podlane {

Result<std::optional<net::Netlink>> open_pod(const net::Namespace &there, const endpoint &entry, std::uint64_t cookie) {
    std::optional<net::Netlink> inside;
    if (there.inode() == entry.netns_inode)
        inside = TRY(net::Netlink::open_in(there));
    if (inside && !TRY(inside->is_in(cookie)))
        inside.reset();
    return inside;
}

} // namespace podlane
