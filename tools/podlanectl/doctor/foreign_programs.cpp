// SPDX-License-Identifier: MIT
// doctor: foreign programs and rules that affect packets of pods.
#include "loader/attach.hpp"
#include "loader/net/filter.hpp"
#include "loader/net/link.hpp"
#include "loader/net/packet_rules.hpp"
#include "loader/net/qdisc.hpp"
#include "loader/net/route.hpp"
#include "maps/abi/names.h"
#include "maps/entries.hpp"
#include "plugin/foreign_qdisc.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/doctor/forward_policy.hpp"
#include "tools/podlanectl/doctor/forward_rules.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace podlane::ctl::doctor {
namespace {

// Connections that skip the host's rules from the first packet on.
bool skips_rules(const EndpointEntry &entry) {
    return (entry.second.flags & (INTERFACE_FIRST_DIRECT | INTERFACE_EGRESS_ROUTE)) != 0;
}

bool takes_fast_path(const EndpointEntry &entry) {
    return (entry.second.flags & (INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK)) != 0;
}

Result<void> look_at_forward_rules(const NodeView &node, Findings &findings) {
    if (std::ranges::none_of(node.endpoints, skips_rules) || std::ranges::none_of(node.endpoints, takes_fast_path))
        return {};
    std::vector<std::string> chains;
    auto looked = find_chains(&dropping_chains_of_nft, &dropping_chains_of_iptables, chains);
    for (const std::string &chain : chains)
        report(findings, chain + " drops or rejects forwarded packets");
    return looked;
}

// Those whose first packets the host stack forwards.
Result<forwarding::Pods> forwarded_pods(const NodeView &node) {
    forwarding::Pods pods;
    std::set<std::uint32_t> own;
    for (const EndpointEntry &entry : node.endpoints) {
        if (skips_rules(entry) || !node.links.contains(entry.second.ifindex))
            continue;
        own.insert(entry.second.ifindex);
        for (const ip_addr &addr : addresses_in(entry.second)) {
            (is_ipv4(addr) ? pods.uses_ipv4 : pods.uses_ipv6) = true;
            pods.ranges.push_back(host_prefix(addr));
        }
    }
    for (const auto &[ifindex, link] : node.links)
        if (own.contains(ifindex)) {
            pods.interfaces.push_back(link.name);
            if (link.master && node.links.contains(*link.master))
                pods.interfaces.push_back(node.links.at(*link.master).name);
        }
    if (node.networks)
        for (const RuntimeNetwork &network : *node.networks)
            for (const auto *ranges : {&network.ranges, &network.clusters})
                pods.ranges.insert(pods.ranges.end(), ranges->begin(), ranges->end());
    for (const UplinkReport &one : node.uplinks)
        pods.ways.push_back(one.name);
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        for (net::RouteSpec &route : TRY(net::list_routes(*node.host, 0, family, net::kAllTables))) {
            if (net::is_of_link(route) || route.type != net::kUnicast)
                continue;
            route.other_links.push_back(route.ifindex);
            for (const std::uint32_t link : route.other_links)
                if (const auto there = node.links.find(link); there != node.links.end())
                    pods.ways.push_back(there->second.name);
        }
    return pods;
}

Result<void> look_at_forward_policy(const NodeView &node, Findings &findings) {
    const forwarding::Pods pods = TRY(forwarded_pods(node));
    if (pods.interfaces.empty())
        return {};
    std::vector<std::string> chains;
    auto looked = find_chains(
        [&](auto listing) { return forwarding::refusing_chains_of_nft(listing, pods); },
        [&](auto listing, auto family) { return forwarding::refusing_chains_of_iptables(listing, family, pods); },
        chains);
    for (const std::string &chain : chains)
        report(findings,
               chain + " drops forwarded packets of pods: no rule in it accepts their interfaces or addresses");
    return looked;
}

Result<void> look_at_packet_rules(const NodeView &node, Findings &findings) {
    if (std::ranges::none_of(node.endpoints, takes_fast_path))
        return {};
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    for (const net::PacketRules &one : TRY(net::packet_rules(netfilter)))
        report(findings, net::words_of(one));
    return {};
}

std::string_view word(Hook hook) { return hook == Hook::ingress ? "ingress" : "egress"; }

Result<std::vector<ForeignProgram>> foreign_on(const NodeView &node, std::uint32_t ifindex, Hook hook) {
    std::vector<ForeignProgram> all = TRY(node.hooks->foreign_programs_on_tcx(ifindex, hook));
    if (!node.hooks->can_have_filters(ifindex))
        return all;
    // The kernel lists the filters of the qdisc `ingress` for both sides.
    if (hook == Hook::egress && TRY(net::ingress_qdisc(*node.host, ifindex)) == net::kIngressQdisc)
        return all;
    const auto side = hook == Hook::ingress ? net::ClsactSide::ingress : net::ClsactSide::egress;
    for (const net::Filter &filter : TRY(net::list_filters(*node.host, ifindex, side)))
        if (filter.priority != PODLANE_TC_PRIORITY || filter.handle != PODLANE_TC_HANDLE)
            all.push_back({filter.program_id, filter.kind == "bpf" ? filter.name : "a " + filter.kind + " filter",
                           filter.priority < PODLANE_TC_PRIORITY});
    return all;
}

Result<void> look_at_other_programs(const NodeView &node, Findings &findings) {
    for (const auto &[ifindex, name] : node.interfaces())
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const ForeignProgram &one : TRY(foreign_on(node, ifindex, hook))) {
                // On clsact, where Podlane knows its own filter by handle and priority.
                const bool is_second = one.name.starts_with(PODLANE_PROGRAM_PREFIX);
                report(findings,
                       one.name + (one.program_id == 0 ? "" : " (id " + std::to_string(one.program_id) + ")") +
                           (is_second ? " is on " : ", not Podlane's, is on ") + std::string(word(hook)) + " of " +
                           name + (is_second ? " in a second filter" : "") +
                           (one.before_ours ? ", before" : ", after") + " Podlane's",
                       {},
                       is_second ? "remove it: tc filter show dev " + name + " " + std::string(word(hook)) +
                                       ", then tc filter del with its pref"
                                 : "");
            }
    return {};
}

std::function<Result<void>()> taking_off_fast_path(const std::string &root, const endpoint_key &key) {
    return [root, key]() -> Result<void> {
        const Tables tables = TRY(Tables::open(root));
        return leave_fast_path(tables, key);
    };
}

// One that Podlane was chained behind, or that a call has seen since, is worth knowing all the same.
Result<void> look_at_qdiscs(const NodeView &node, Findings &findings) {
    for (const EndpointEntry &entry : node.endpoints) {
        const auto link = node.links.find(entry.second.ifindex);
        if (link == node.links.end() || link->second.name != field_text(entry.second.host_ifname))
            continue;
        const std::string kind =
            TRY(node.hooks->can_have_filters(link->first) ? foreign_qdisc(*node.host, link->second)
                                                          : foreign_root_qdisc(*node.host, link->second));
        if (kind.empty())
            continue;
        const std::string has = link->second.name + " has the qdisc " + kind + " of another program: ";
        if (takes_fast_path(entry))
            report(findings, has + "packets on the fast path bypass it",
                   taking_off_fast_path(node.world.bpffs, entry.first));
        else
            report(findings, has + "the pod's packets take the slow path", {}, "none if that is intended");
    }
    return {};
}

constexpr std::array<Check, 5> kForeignProgramsChecks = {{
    {"forward-rules", Severity::notice,
     "connections of pods with \"firstPacket\": \"direct\", or with an \"uplink\" of their own, bypass these rules "
     "from "
     "the first packet on: a NetworkPolicy written there is not enforced for them",
     "remove these keys from the configuration of the networks that these rules apply to, and recreate the pods",
     &look_at_forward_rules},
    {"forward-policy", Severity::notice,
     "the host stack forwards a connection's first packets, and a firewall (Docker, firewalld, ufw) drops them there: "
     "pods reach nothing but their node",
     "have the firewall accept the pods: iptables -I FORWARD -i cali+ -j ACCEPT; iptables -I FORWARD -o cali+ -j "
     "ACCEPT (IPv6: ip6tables); an nftables chain by the same rules in it; firewalld by a zone for them: firewall-cmd "
     "--zone=trusted --add-source=RANGE",
     &look_at_forward_policy},
    {"packet-rules", Severity::notice,
     "these rules work by packet: they meet a connection's first packets, and not those that take the fast path",
     "mark the connections they are meant for with \"slowPathMark\", or set \"fastPath\" to \"off\" for the network",
     &look_at_packet_rules},
    {"foreign-qdisc", Severity::notice,
     "a plugin behind Podlane in the list, such as bandwidth, limits the pod by a qdisc on its host-side veth: it sees "
     "only what the host stack delivers",
     "podlanectl doctor --fix, or the next ADD or CHECK, takes the pod off the fast path; or use Podlane's own "
     "limits",
     &look_at_qdiscs},
    {"other-programs", Severity::notice,
     "packets it drops, redirects or accepts do not reach Podlane, and packets Podlane redirects do not reach "
     "programs after it",
     "none if that agent is intended; else remove its program (bpftool net, tc filter del)", &look_at_other_programs},
}};

} // namespace

std::span<const Check> foreign_checks() { return kForeignProgramsChecks; }

} // namespace podlane::ctl::doctor
