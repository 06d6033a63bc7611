// SPDX-License-Identifier: MIT
// doctor: foreign programs and rules that affect packets of pods.
#include "loader/attach.hpp"
#include "loader/net/filter.hpp"
#include "loader/net/link.hpp"
#include "loader/net/packet_rules.hpp"
#include "loader/net/qdisc.hpp"
#include "maps/abi/names.h"
#include "plugin/foreign_qdisc.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/doctor/forward_rules.hpp"

#include <algorithm>
#include <array>
#include <map>

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
    auto looked = find_chains_that_drop_forwarded(chains);
    for (const std::string &chain : chains)
        report(findings, chain + " drops or rejects forwarded packets");
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
            for (const ForeignProgram &one : TRY(foreign_on(node, ifindex, hook)))
                report(findings, one.name +
                                     (one.program_id == 0 ? "" : " (id " + std::to_string(one.program_id) + ")") +
                                     ", not Podlane's, is on " + std::string(word(hook)) + " of " + name +
                                     (one.before_ours ? ", before" : ", after") + " Podlane's");
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
    std::map<std::uint32_t, net::Link> links;
    for (net::Link &link : TRY(net::list_links(*node.host)))
        links.emplace(link.ifindex, std::move(link));
    for (const EndpointEntry &entry : node.endpoints) {
        const auto link = links.find(entry.second.ifindex);
        if (link == links.end() || link->second.name != field_text(entry.second.host_ifname))
            continue;
        const bool has_edt = (entry.second.flags & INTERFACE_LIMIT_EDT) != 0;
        const std::string kind = TRY(foreign_qdisc(*node.host, link->second, has_edt));
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

constexpr std::array<Check, 4> kForeignProgramsChecks = {{
    {"forward-rules", Severity::notice,
     "connections of pods with \"firstPacket\": \"direct\", or with an \"uplink\" of their own, bypass these rules "
     "from "
     "the first packet on: a NetworkPolicy written there is not enforced for them",
     "remove these keys from the configuration of the networks that these rules apply to, and recreate the pods",
     &look_at_forward_rules},
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
