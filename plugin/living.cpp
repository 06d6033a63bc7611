// SPDX-License-Identifier: MIT
#include "plugin/living.hpp"

#include "loader/host_veth.hpp"
#include "maps/errors.hpp"
#include "plugin/ipam.hpp"
#include "plugin/remove.hpp"
#include "plugin/state.hpp"

namespace podlane {
namespace {

Result<void> refuse_living(const cni::Request &request, const endpoint &known, const net::Namespace &pod,
                           net::Netlink &host) {
    const auto record = TRY(find_record(request));
    if (!record || !TRY(find_host_veth(host, known)))
        return {};
    const auto other = TRY(net::Namespace::find(record->netns));
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

// After its end another namespace may have its number.
Result<bool> is_namespace_of(const cni::Request &request, const endpoint &known, const net::Namespace &pod,
                             const net::Netlink &inside) {
    if (known.netns_inode != pod.inode())
        return false;
    const auto record = TRY(find_record(request));
    return inside.is_in(record ? record->netns_cookie : 0);
}

// An ADD that was killed may have made it, and its DEL removes it.
std::string remedy_for_interface(const cni::Request &request, bool is_known) {
    if (request.ifname == "lo")
        return "choose another CNI_IFNAME: each namespace has an interface lo of its own";
    return is_known ? "it may be that of an ADD that was killed, which is on record: DEL comes before a second ADD"
                    : "remove it, or choose another CNI_IFNAME";
}

} // namespace

Result<void> refuse_second(const cni::Request &request, endpoint_mode mode, const net::Namespace &pod, Sockets &sockets,
                           const Tables &tables) {
    const auto link = TRY(net::find_link(sockets.pod, request.ifname));
    const auto known = TRY(tables.endpoints.find(TRY(make_endpoint_key(request.container_id, request.ifname))));
    if (known && link && known->pod_ifindex == link->ifindex && TRY(is_namespace_of(request, *known, pod, sockets.pod)))
        return Error{ErrorCode::already_exists,
                     "container " + request.container_id + " has its interface " + request.ifname + " already",
                     "DEL comes before a second ADD"};
    if (known)
        TRY(refuse_living(request, *known, pod, sockets.host));
    const bool is_known = known || TRY(is_on_record(request));
    if (mode != ENDPOINT_AFTER_MAIN && link)
        return Error{ErrorCode::already_exists,
                     "the container's namespace " + request.netns + " has an interface " + request.ifname + " already",
                     remedy_for_interface(request, is_known)};
    if (!is_known)
        return {};
    auto removed = remove_attachment(request, Lease::must_not_wait);
    return removed ? std::move(removed)
                   : ipam::with_present_cause(
                         request, std::move(removed).error().context("removing what an earlier attachment left"));
}

} // namespace podlane
