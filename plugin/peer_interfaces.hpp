// SPDX-License-Identifier: MIT
// Ties the interfaces of one container together: the entries by which what it sends from an address leaves by the
// network of that address.
#pragma once

#include "plugin/endpoint.hpp"
#include "loader/net/netlink.hpp"
#include "loader/net/route.hpp"
#include "plugin/egress_route.hpp"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace podlane {

using PeerInterface = std::pair<endpoint_key, endpoint>;

// Which interfaces of a container are endpoints: by the maps, or by the records on disk if there are none.
using FindEndpoint = std::function<Result<std::optional<endpoint>>(const endpoint_key &)>;

// Of the record and of what the programs know of it. All else of it is as it is now: limits may have changed since it
// was read. Nothing if it has gone.
Result<void> change_flag(const Tables &tables, const endpoint_key &key, interface_flags flag, bool on);

// The container's other interfaces that take part in source routing, whatever network they belong to; none if
// `config` has it switched off. `pod` is a socket in the container's namespace. `foreign_links` are its interfaces
// without programs on a host-side veth.
Result<std::vector<PeerInterface>> find_peer_interfaces(const cni::Request &request, const Tables &tables,
                                                        net::Netlink &pod, std::uint64_t netns_inode,
                                                        std::vector<net::Link> *foreign_links = nullptr);
Result<std::vector<PeerInterface>> find_peer_interfaces(const cni::Request &request, const FindEndpoint &find,
                                                        net::Netlink &pod, std::uint64_t netns_inode,
                                                        std::vector<net::Link> *foreign_links);

// The same without those that an ADD or DEL has not finished, or did not live to finish.
Result<std::vector<PeerInterface>> find_whole_peers(const cni::Request &request, const Tables &tables,
                                                    net::Netlink &pod, std::uint64_t netns_inode);

// The container's other interfaces, and the flags by which the programs take them into account.
struct ContainerLinks {
    std::vector<PeerInterface> peers{};
    std::vector<net::Link> foreign_links{};
    std::uint32_t flags = 0;
};
Result<ContainerLinks> find_container_links(const cni::Request &request, const Tables &tables, net::Netlink &pod,
                                            std::uint64_t netns_inode, const std::optional<EgressRoute> &egress_route);

// The flags of an endpoint with these peer interfaces and this egress route.
std::uint32_t source_flags(const cni::Config &config, const std::vector<PeerInterface> &peers,
                           const std::optional<EgressRoute> &egress);

// The map's entries of an endpoint: its own addresses if it has an egress route, those of its peer interfaces at its
// host-side veth, and its own at theirs.
Result<SourceEntries> wanted_source_routes(const endpoint &record, const std::vector<cni::Address> &leased,
                                           const std::vector<PeerInterface> &peers,
                                           const std::optional<EgressRoute> &egress, const Tables &tables,
                                           net::Netlink &host);

// Inserts them, and sets the flag that lets the peer interfaces' programs look there.
Result<void> put_source_routes(const SourceEntries &entries, const std::vector<PeerInterface> &peers,
                               const Tables &tables, Rollback &rollback);

// Of an endpoint that has these entries: removes slots at its host-side veth behind them that a call has left.
Result<void> remove_stale_slots(const endpoint &record, const SourceEntries &entries, const Tables &tables);

// ErrorCode::check_failed names an entry that is missing or wrong, or a slot that is left.
Result<void> check_source_routes(const endpoint &record, const SourceEntries &entries,
                                 const std::vector<PeerInterface> &peers, const Tables &tables);

// Metric of requested routes that another interface has already, above the kernel's own 1024 of IPv6; plus the
// interface's number.
constexpr std::uint32_t kLaterRoutes = 2048;

// Another interface's stays in front: then this one is for sockets bound to the interface, and when that one goes.
Result<void> add_pod_route(net::Netlink &pod, net::RouteSpec route);

// The subnet of another interface of the container, if it holds the lease's gateway that `route` leads to: with that
// route, what the other interface's network sends to the machine would leave by this one.
Result<std::optional<Prefix>> subnet_on_other_link(net::Netlink &pod, const net::RouteSpec &route);
// Such a route becomes one to the whole subnet, behind the other interface's: the gateway is reached by that one, and a
// default route by the gateway can be moved to this one all the same.
Result<void> step_behind_other_link(net::Netlink &pod, net::RouteSpec &route);

} // namespace podlane
