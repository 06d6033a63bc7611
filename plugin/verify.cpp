// SPDX-License-Identifier: MIT
#include "plugin/verify.hpp"

#include "loader/edt.hpp"
#include "loader/host_route.hpp"
#include "loader/host_veth.hpp"
#include "loader/limit_group.hpp"
#include "loader/net/qdisc.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/shaper.hpp"
#include "maps/abi/limit.h"
#include "maps/abi/limit_math.h"
#include "maps/entries.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/announcement.hpp"
#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "plugin/network.hpp"
#include "plugin/pod_routes.hpp"
#include "plugin/pod_rules.hpp"
#include "plugin/peer_interfaces.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace podlane {
namespace {

// The attachment as ADD recorded it, and a socket in each namespace.
struct Checked {
    const cni::Request &request;
    const endpoint &record;
    net::Netlink &host;
    net::Netlink &pod;
    NodeRules &rules;
    HostRoutes &routes;
    const std::vector<cni::Route> &leased;
    std::string qdisc{};     // of the host-side veth
    std::string pod_qdisc{}; // of the container's interface

    [[nodiscard]] std::string host_ifname() const { return std::string(field_text(record.host_ifname)); }
    [[nodiscard]] std::span<const ip_addr> addresses() const { return addresses_in(record); }
};

// A call that failed is no difference.
bool differs(const Result<void> &checked) { return !checked && checked.error().code == ErrorCode::check_failed; }

Result<net::Link> check_pod_end(Checked &c) {
    auto pod = TRY(net::find_link(c.pod, c.request.ifname));
    if (!pod)
        return gone("interface " + c.request.ifname + " is gone from the container");
    if (pod->ifindex != c.record.pod_ifindex)
        return gone("interface " + c.request.ifname + " of the container is not the one that ADD saw");
    if (!pod->up) {
        Error down = gone("interface " + c.request.ifname + " of the container is down");
        if (c.record.ifindex == 0) // another plugin's: no repair touches it
            down.hint = "`nsenter --net=" + c.request.netns + " ip link set " + c.request.ifname + " up`";
        return down;
    }
    return *std::move(pod);
}

// The host-side veth that Podlane made: a later plugin may change the container's end alone. A VRF is the
// administrator's: packets obey it.
Result<void> check_own_link(Checked &c, const net::Link &host) {
    const std::string veth = "the host-side veth " + c.host_ifname();
    if (!std::ranges::equal(host.mac, c.record.host_mac))
        return gone(veth + " has MAC " + to_string(host.mac) + ", which the container's gateways do not have");
    if (host.mtu != c.record.mtu)
        return gone(veth + " has MTU " + std::to_string(host.mtu) + " instead of " + std::to_string(c.record.mtu));
    if (const auto master = TRY(foreign_master(c.host, host)))
        return gone(veth + " is a port of " + *master);
    if (host.alias != alias_of(c.request))
        return gone(veth + " has the alias \"" + cni::masked_text(host.alias) + "\" instead of the attachment's");
    return {};
}

Result<void> check_links(Checked &c) {
    const auto host = TRY(find_host_veth(c.host, c.record));
    if (!host)
        return gone("the host-side veth " + c.host_ifname() + " is gone");
    if (is_renamed(*host, c.record))
        return gone("the host-side veth " + c.host_ifname() + " is called " + host->name + " now");
    if (!host->up)
        return gone("the host-side veth " + c.host_ifname() + " is down");
    c.qdisc = host->qdisc;
    if (c.record.mode != ENDPOINT_AFTER_MAIN)
        TRY(check_own_link(c, *host));
    const net::Link pod = TRY(check_pod_end(c));
    c.pod_qdisc = pod.qdisc;
    if (c.record.mode != ENDPOINT_AFTER_MAIN && !has_mtu_for(c.addresses(), pod.mtu))
        return gone(mtu_is_too_small("interface " + c.request.ifname + " of the container", pod.mtu));
    if (host->peer_ifindex != pod.ifindex)
        return gone("interface " + c.request.ifname + " of the container is not the other end of " + c.host_ifname());
    const bool bound = (c.record.flags & INTERFACE_ANTI_SPOOF) != 0;
    if (bound && !std::ranges::equal(pod.mac, c.record.pod_mac))
        return gone("interface " + c.request.ifname + " of the container has MAC " + to_string(pod.mac) +
                    ", which antiSpoof does not let through" +
                    ((c.record.flags & INTERFACE_ROUTED) == 0
                         ? "; a plugin that sets the MAC must be in front of Podlane in the list"
                         : ""));
    return {};
}

Result<void> check_addresses(Checked &c) {
    const auto present = TRY(net::list_addresses(c.pod, c.record.pod_ifindex));
    std::vector<ip_addr> expected(c.addresses().begin(), c.addresses().end());
    if (c.record.mode != ENDPOINT_AFTER_MAIN && !is_none(c.record.link_local))
        expected.push_back(c.record.link_local);
    for (const ip_addr &addr : expected) {
        const auto found = std::ranges::find_if(present, [&](const auto &one) { return one.prefix.addr == addr; });
        if (found != present.end()) {
            // The kernel detects duplicates of a link-local address that it has restored, and another plugin's of its.
            const bool may_be_tentative = c.record.mode == ENDPOINT_AFTER_MAIN || addr == c.record.link_local;
            if (const std::string why = unusable_because(*found, may_be_tentative); !why.empty())
                return gone("address " + to_string(addr) + " of interface " + c.request.ifname +
                            " of the container cannot be used: " + why);
            continue;
        }
        const auto link = TRY(net::find_link(c.pod, c.record.pod_ifindex));
        if (!is_ipv4(addr) && link && link->ipv6_off)
            return gone(ipv6_is_off("interface " + c.request.ifname + " of the container", c.request.ifname));
        return gone("address " + to_string(addr) + " is gone from interface " + c.request.ifname + " of the container");
    }
    return {};
}

// The container's kernel forgets its neighbours when the MAC changes; the program answers for them from then on, and
// writes the new MAC into what the host stack delivers.
Result<void> check_neighbours(Checked &c, const Plan &plan) {
    const bool has_learned_mac = (c.record.flags & INTERFACE_MAC_LEARNED) != 0;
    for (const net::Neighbour &gateway : plan.pod_neighbours) {
        const auto found = TRY(net::find_neighbour(c.pod, c.record.pod_ifindex, gateway.addr));
        if (has_learned_mac && (!found || found->mac == Mac{} || found->mac == gateway.mac))
            continue;
        if (!found || !found->permanent || found->mac != gateway.mac)
            return gone("the permanent neighbour " + to_string(gateway.addr) + " is gone from the container");
    }
    for (const net::Neighbour &pod : plan.host_neighbours) {
        const auto found = TRY(net::find_neighbour(c.host, c.record.ifindex, pod.addr));
        if (!found || !found->permanent)
            return gone("the host's permanent neighbour " + to_string(pod.addr) + " is gone from " + c.host_ifname());
        if (!has_learned_mac && !std::ranges::equal(found->mac, c.record.pod_mac))
            return gone("the host's neighbour " + to_string(pod.addr) + " on " + c.host_ifname() + " has MAC " +
                        to_string(found->mac) + ", which is not the container's");
    }
    return {};
}

// That of link-local addresses may be another host-side veth's: whose the kernel uses does not matter.
Result<void> check_host_routes(Checked &c, const Plan &plan) {
    for (net::RouteSpec route : plan.host_routes) {
        route.ifindex = c.record.ifindex;
        if (route.append || TRY(c.routes.follow(route)))
            continue;
        if (TRY(net::find_route(c.host, route))) {
            if (auto hiding = TRY(c.routes.find_hiding(route)))
                return *std::move(hiding);
            continue;
        }
        if (TRY(leads_elsewhere(c.host, route)))
            return elsewhere(route);
        return gone("the host's route to " + to_string(route.destination.addr) + " by " + c.host_ifname() + " is gone");
    }
    return {};
}

Result<void> check_host_rules(Checked &c) {
    for (const ip_addr &addr : c.addresses())
        if (auto error = TRY(c.rules.find_foreign(addr, c.record.ifindex)))
            return *std::move(error);
    return {};
}

// The lease as ADD saw it: prevResult carries the addresses without the prefix length of their subnet, which only
// routes need; so the subnet's own route is not looked for.
Result<void> check_own_interface(Checked &c) {
    cni::Attachment lease = *c.request.config.prev_result;
    const Plan plan = TRY(make_plan(c.request, lease, recorded_facts(c.record)));
    if (auto fault = TRY(find_ipv6_fault(c.host, c.record)))
        return gone(*std::move(fault));
    TRY(check_pod_routes({c.pod, c.request.netns}, c.record, plan));
    TRY(check_neighbours(c, plan));
    TRY(check_host_routes(c, plan));
    return check_host_rules(c);
}

Result<void> check_lease(const cni::Request &request, const endpoint &record) {
    for (const cni::Address &one : addresses_of(*request.config.prev_result, request.ifname)) {
        const auto known = addresses_in(record);
        if (std::ranges::none_of(known, [&](const ip_addr &addr) { return addr == one.prefix.addr; }))
            return Error{
                ErrorCode::check_failed, "prevResult's address " + to_string(one.prefix) + " is not the endpoint's",
                "if a plugin behind podlane added it, the pod cannot use it: let the IPAM plugin give it, or place "
                "that plugin in front of podlane"};
    }
    return {};
}

Result<void> check_rules(Checked &c) {
    if ((c.record.flags & INTERFACE_POD_RULES) == 0)
        return {};
    return check_pod_rules(c.pod, c.record, addresses_with_gateways(c.request, c.record), c.leased);
}

// Of limits and NAT: what other programs of the node can remove.
Result<void> check_host_services(Checked &c) {
    if ((c.record.flags & INTERFACE_LIMIT_EDT) != 0 && !is_edt_qdisc(c.qdisc))
        return gone("the qdisc of the limit is gone from " + c.host_ifname() + ": limits drop instead of delaying");
    const auto by = static_cast<endpoint_masquerade>(c.record.masquerade);
    if (by != ENDPOINT_MASQUERADE_NONE && !TRY(is_masqueraded(by, c.request.config.name, c.addresses())))
        return gone(masquerade_is_gone(c.record));
    if (!TRY(has_egress_rules(c.request.config, c.record)))
        return gone("the rules or set elements that limit the egress of " + c.host_ifname() + " are gone");
    return {};
}

Result<void> check_class_rate(net::Netlink &netlink, std::uint32_t ifindex, const std::string &qdisc,
                              const std::string &where, std::uint64_t bytes_per_s) {
    const auto has = TRY(net::htb_class_rate(netlink, ifindex, LIMIT_CLASS)); // none of fq and of foreign qdiscs
    if (!has && qdisc == "htb" && TRY(net::has_root_qdisc(netlink, ifindex, LIMIT_QDISC)))
        return gone("the class of the limit is gone from the qdisc on " + where);
    if (!has || *has == bytes_per_s)
        return {};
    return gone("the qdisc of the limit on " + where + " has a rate of " + std::to_string(*has * 8) +
                " bit/s instead of " + std::to_string(bytes_per_s * 8));
}

// The kernel's own queue, another program's, or one that holds much less, drops what the bucket admits.
Result<void> check_queue(Checked &c, const bandwidth &most) {
    const auto leaf = TRY(net::leaf_qdisc(c.host, c.record.ifindex, LIMIT_CLASS));
    const std::uint64_t wanted = edt_queue_bytes(most.ingress_rate_bits_per_s, most.ingress_burst_bits);
    if (leaf.kind == "bfifo" && leaf.limit >= std::min<std::uint64_t>(wanted, UINT32_MAX) / 2)
        return {};
    return gone("the queue of the limit on " + c.host_ifname() +
                (leaf.kind == "bfifo"
                     ? " holds " + std::to_string(leaf.limit) + " bytes instead of " + std::to_string(wanted)
                     : " is gone"));
}

// By what the maps say now. A direction without a limit keeps a qdisc, which holds nothing.
Result<void> check_limiter_rates(Checked &c, const Tables &tables) {
    const std::uint32_t ifindex = c.record.ifindex;
    const bandwidth limits = TRY(tables.bandwidths.find(ifindex)).value_or(bandwidth{});
    const bandwidth most = TRY(with_borrowed(tables.bandwidths, tables.limit_states, ifindex, limits));
    if ((c.record.flags & INTERFACE_LIMIT_EDT) != 0 && limits.ingress_rate_bits_per_s != 0) {
        TRY(check_class_rate(c.host, ifindex, c.qdisc, c.host_ifname(), edt_bytes_per_s(most.ingress_rate_bits_per_s)));
        if (c.qdisc == "htb" && TRY(net::has_root_qdisc(c.host, ifindex, LIMIT_QDISC)))
            TRY(check_queue(c, most));
    }
    const std::uint64_t rate = limits.egress_rate_bits_per_s;
    if (c.record.shaped == 0)
        return {};
    if (rate != 0 && c.pod_qdisc == "noqueue") // one of the container's own stays
        return gone("the qdisc of the limit is gone from interface " + c.request.ifname +
                    " of the container: what it sends beyond the limit is dropped instead of held");
    // Without a limit a killed `bandwidth set` has shaped it.
    return check_class_rate(c.pod, c.record.pod_ifindex, c.pod_qdisc,
                            "interface " + c.request.ifname + " of the container",
                            shaper_bytes_per_s(rate != 0 ? rate : HIGHEST_RATE));
}

// None of our programs, maps and networks is concerned.
Result<void> check_in_pod_rules(Checked &c) {
    TRY(check_pod_end(c));
    TRY(check_addresses(c));
    TRY(check_lease(c.request, c.record));
    return check_rules(c);
}

Result<void> look_at_source_routes(Checked &c, const Tables &tables, const std::optional<EgressRoute> &egress,
                                   bool only_whole) {
    const auto peers = TRY(only_whole ? find_whole_peers(c.request, tables, c.pod, c.record.netns_inode)
                                      : find_peer_interfaces(c.request, tables, c.pod, c.record.netns_inode));
    const auto leased = addresses_of(*c.request.config.prev_result, c.request.ifname);
    const SourceEntries wanted = TRY(wanted_source_routes(c.record, leased, peers, egress, tables, c.host));
    return check_source_routes(c.record, wanted, peers, tables);
}

Result<void> check_source_routing(Checked &c, const Tables &tables, const std::optional<EgressRoute> &egress) {
    TRY(check_link(egress, c.addresses(), c.host));
    TRY(check_rules(c));
    // A DEL of another interface may not have got as far as its routes, or have come between.
    for (const bool only_whole : {true, false}) {
        auto looked = look_at_source_routes(c, tables, egress, only_whole);
        if (!differs(looked))
            return looked;
    }
    return look_at_source_routes(c, tables, egress, true);
}

} // namespace

Result<void> check_hook(const endpoint &record, const HookProgram &planned, std::uint32_t id,
                        const std::vector<Attached> &ours) {
    const std::string where = std::string(planned.hook == Hook::ingress ? "ingress" : "egress") + " of " +
                              std::string(field_text(record.host_ifname));
    if (ours.empty())
        return gone("program " + std::string(planned.name) + " is gone from " + where);
    if (ours.size() > 1)
        return gone(std::to_string(ours.size()) + " programs of Podlane are on " + where);
    if (ours.front().program_id != id)
        return gone("program " + ours.front().name + " on " + where + " is not the pinned one");
    return {};
}

Result<void> Verifier::check_programs(const std::string &root, const endpoint &record) {
    if (programs_.empty() || root_ != root) {
        std::vector<std::uint32_t> ids;
        ids.reserve(kPodPrograms.size());
        for (const HookProgram &one : kPodPrograms)
            ids.push_back(TRY(program_facts(TRY(open_program(root, one.name)).get())).id);
        programs_ = std::move(ids);
        root_ = root;
    }
    for (std::size_t i = 0; i < kPodPrograms.size(); ++i)
        TRY(check_hook(record, kPodPrograms.at(i), programs_.at(i),
                       TRY(find_attached_(record.ifindex, kPodPrograms.at(i).hook))));
    return {};
}

// The same for all attachments with these flags and words of the configuration.
Result<void> Verifier::check_network_once(const cni::Request &request, const endpoint &record) {
    std::string key = request.config.bpffs + " " + request.config.name;
    for (const Prefix &prefix : request.config.cluster_cidrs)
        key += " " + to_string(prefix);
    key += has_egress_route(request.config) ? " egress" : "";
    key += " " + std::to_string(record.flags);
    auto known = networks_.find(key);
    if (known == networks_.end())
        known = networks_.emplace(std::move(key), check_network(request, tables_, record)).first;
    return known->second;
}

Result<void> Verifier::verify(const cni::Request &request, const endpoint &stored, net::Netlink &pod,
                              const std::vector<cni::Route> &leased, bool has_groups) {
    endpoint record = stored;
    if (const auto entry = TRY(tables_.interfaces.find(record.ifindex)))
        take_learned_mac(*entry, record);
    Checked c{request, record, host_, pod, rules_, routes_, leased};
    if (record.ifindex == 0)
        return check_in_pod_rules(c);
    TRY(check_links(c));
    TRY(check_addresses(c));
    TRY(check_lease(request, record));
    if (record.mode != ENDPOINT_AFTER_MAIN)
        TRY(check_own_interface(c));
    TRY(check_programs(request.config.bpffs, record));
    TRY(check_entries(tables_, request.config, record));
    if (has_groups)
        TRY(check_groups(tables_, request.config, record));
    TRY(check_host_services(c));
    auto rates = check_limiter_rates(c, tables_);
    if (differs(rates)) { // podlanectl changes the qdisc and the map one after the other
        const Lock after_changes = TRY(Lock::shared(request.config.bpffs));
        rates = check_limiter_rates(c, tables_);
    }
    TRY(std::move(rates));
    const std::optional<EgressRoute> egress = TRY(find_egress_route(request.config, c.host));
    TRY(check_source_routing(c, tables_, egress));
    return check_network_once(request, record);
}

} // namespace podlane
