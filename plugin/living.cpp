// SPDX-License-Identifier: MIT
#include "plugin/living.hpp"

#include "loader/host_veth.hpp"
#include "maps/errors.hpp"
#include "plugin/state.hpp"

namespace podlane {

Result<void> refuse_living(const cni::Request &request, const endpoint &known, const net::Namespace &pod,
                           net::Netlink &host) {
    const auto record = TRY(find_record(request));
    if (!record || !TRY(find_host_veth(host, known)))
        return {};
    const auto other = net::Namespace::open(record->netns);
    if (!other || *other == pod)
        return {};
    net::Netlink inside = TRY(net::Netlink::open_in(*other));
    const auto link = TRY(net::find_link(inside, known.pod_ifindex));
    if (!link || link->peer_ifindex != known.ifindex)
        return {};
    return Error{ErrorCode::already_exists,
                 "container " + request.container_id + " has its interface " + request.ifname + " in the namespace " +
                     record->netns,
                 "DEL of that attachment comes before an ADD for another namespace"};
}

} // namespace podlane
