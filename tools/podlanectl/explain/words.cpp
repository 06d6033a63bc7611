// SPDX-License-Identifier: MIT
// The steps of a traced run as decisions.
#include "maps/abi/event.h"
#include "maps/text.hpp"
#include "tools/podlanectl/explain/explain.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/network.hpp"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace podlane::ctl {
namespace {

template <typename T> T as(const Bytes &bytes) {
    T value{};
    std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
    return value;
}

std::string joined(const std::vector<std::string> &words) { return words.empty() ? "none" : join(words, ","); }

std::string named(std::uint32_t ifindex) {
    const std::string name = interface_name(ifindex);
    return name.empty() ? "interface " + std::to_string(ifindex) : name;
}

// Context of the run, for the words.
struct Subject {
    const Names &names;
    FrameFacts frame;
};

Decision of_interface(const TracedStep &step, const Subject &s) {
    const auto ifindex = as<std::uint32_t>(step.key);
    const auto entry = as<interface>(step.value);
    Decision d{"endpoint", "no endpoint is behind it", PODLANE_MAP_INTERFACES, named(ifindex)};
    if (step.head.answer != 0)
        d.answer = s.names.pod_of(ifindex) + " in network " + network_words(s.names.networks, entry.network) + ", " +
                   joined(flag_words(entry.flags));
    return d;
}

Decision of_address(const TracedStep &step, const Subject &s) {
    const auto key = as<address_key>(step.key);
    const auto entry = as<address>(step.value);
    const std::string network = network_words(s.names.networks, key.network);
    Decision d{key.addr == s.frame.source ? "source" : "receiver", "no pod of this node and network has it",
               PODLANE_MAP_ADDRESSES, network + " " + to_string(key.addr)};
    if (step.head.answer != 0)
        d.answer =
            s.names.pod_of(entry.ifindex) + ", behind " + named(entry.ifindex) + ", MTU " + std::to_string(entry.mtu);
    return d;
}

std::string via_words(const flow_path &path) {
    std::string text(via_name(path.via));
    if (path.via == PATH_UPLINK)
        text += path.uplink == 0 ? " as the routes say" : " " + named(path.uplink);
    return text;
}

Decision of_path(const TracedStep &step, const Subject &s) {
    const auto key = as<path_key>(step.key);
    const bool writes = step.head.kind == TRACE_WRITE;
    Decision d{writes ? "would write" : "flow cache", "not cached", PODLANE_MAP_PATHS,
               s.names.pod_of(key.ifindex) + " " + protocol_name(key.protocol) + " " +
                   socket_words(key.local, key.local_port) + " " + socket_words(key.peer, key.peer_port)};
    if (writes || step.head.answer != 0)
        d.answer = via_words(as<flow_path>(step.value));
    return d;
}

Decision of_flow(const TracedStep &step, const Subject &) {
    const auto key = as<flow_key>(step.key);
    const bool writes = step.head.kind == TRACE_WRITE;
    Decision d{writes ? "would write" : "flow cache", "not cached", PODLANE_MAP_FLOWS,
               protocol_name(key.protocol) + " " + socket_words(key.source, key.source_port) + " " +
                   socket_words(key.destination, key.destination_port)};
    if (!writes && step.head.answer == 0)
        return d;
    const auto entry = as<flow>(step.value);
    if ((entry.flags & FLOW_UNTRACKED) != 0) {
        d.answer = "direct: conntrack does not know it";
        return d;
    }
    d.answer = (entry.flags & FLOW_TRANSLATED) == 0
                   ? "confirmed by conntrack"
                   : "confirmed by conntrack, translated to " + socket_words(entry.source, entry.source_port) + " " +
                         socket_words(entry.destination, entry.destination_port);
    return d;
}

Decision of_source(const TracedStep &step, const Subject &) {
    const auto key = as<allowed_source_key>(step.key);
    return {"source", step.head.answer != 0 ? "in an allowed prefix" : "in no allowed prefix", PODLANE_MAP_SOURCES,
            named(ntohl(key.ifindex)) + " " + to_string(key.addr)};
}

Decision of_uplink(const TracedStep &step, const Subject &s) {
    const auto ifindex = as<std::uint32_t>(step.key);
    Decision d{"uplink", named(ifindex) + " is not an uplink", PODLANE_MAP_UPLINKS, named(ifindex)};
    if (step.head.answer == 0)
        return d;
    std::vector<std::string> networks;
    for (const std::uint32_t network : as<uplink>(step.value).networks)
        if (network != 0)
            networks.push_back(network_words(s.names.networks, network));
    d.answer = named(ifindex) + " is the uplink of " + joined(networks);
    return d;
}

Decision of_cidr(const TracedStep &step, const Subject &s) {
    const auto key = as<cluster_cidr_key>(step.key);
    return {"cluster", step.head.answer != 0 ? "in the cluster" : "outside of the cluster", PODLANE_MAP_CIDRS,
            network_words(s.names.networks, ntohl(key.network)) + " " + to_string(key.addr)};
}

Decision of_source_route(const TracedStep &step, const Subject &) {
    const auto key = as<source_route_key>(step.key);
    const auto entry = as<source_route>(step.value);
    Decision d{"source route", "none of its own", PODLANE_MAP_SOURCE_ROUTES, ""};
    if (!step.key.empty())
        d.key = named(key.ifindex) + " " + to_string(key.source);
    if (step.head.answer == 0)
        return d;
    d.answer = to_string(entry.source) + " is that of " + named(entry.ifindex);
    if (entry.uplink != 0)
        d.answer += ", leaves by " + named(entry.uplink) +
                    (is_none(entry.gateway) ? " as its routes say" : " by " + to_string(entry.gateway));
    return d;
}

Decision of_bandwidth(const TracedStep &step, const Subject &) {
    const auto ifindex = as<std::uint32_t>(step.key);
    const auto entry = as<bandwidth>(step.value);
    Decision d{"limit", "none", PODLANE_MAP_BANDWIDTHS, named(ifindex)};
    if (step.head.answer != 0)
        d.answer = "to the pod " + std::to_string(entry.ingress_rate_bits_per_s) + ", from it " +
                   std::to_string(entry.egress_rate_bits_per_s) + " bit/s (0: none)";
    return d;
}

std::string members_of(std::span<const __u64> groups) {
    const auto count = std::ranges::count_if(groups, [](std::uint64_t group) { return group != 0; });
    return count == 0 ? "no group" : count == 1 ? "1 group" : std::to_string(count) + " groups";
}

Decision of_isolation(const TracedStep &step, const Subject &s) {
    const auto entry = as<isolation>(step.value);
    Decision d{"groups", "none", PODLANE_MAP_ISOLATION, s.names.pod_of(as<std::uint32_t>(step.key))};
    if (step.head.answer != 0)
        d.answer = "in " + members_of(entry.groups) + ", accepts " + members_of(entry.accepted) +
                   ((entry.flags & ISOLATION_HOST) != 0 ? ", the host" : "") +
                   ((entry.flags & ISOLATION_OUTSIDE) != 0 ? ", the outside" : "");
    return d;
}

// An IPv6 prefix such as ::/0 holds no IPv4 address.
std::optional<std::uint32_t> prefix_value(const TracedStep &step, const ip_addr &addr) {
    const auto value = as<std::uint32_t>(step.value);
    const bool is_found = step.head.answer != 0 && ((value & PREFIX_IPV6) == 0 || !is_ipv4(addr));
    return is_found ? std::optional(value) : std::nullopt;
}

Decision of_group_cidr(const TracedStep &step, const Subject &) {
    const auto key = as<allowed_source_key>(step.key);
    const auto value = prefix_value(step, key.addr);
    const char *answer = !value                       ? "in no prefix of a group"
                         : (*value & PREFIX_SET) != 0 ? "in a prefix of an accepted group"
                                                      : "in a prefix of a group that is not accepted";
    return {"pods of other nodes", answer, PODLANE_MAP_GROUP_CIDRS,
            named(ntohl(key.ifindex)) + " " + to_string(key.addr)};
}

Decision of_exempt(const TracedStep &step, const Subject &) {
    const auto key = as<exempt_key>(step.key);
    const auto value = prefix_value(step, key.addr);
    return {"exempt", value && (*value & PREFIX_SET) == 0 ? "in an exempt prefix: the limit does not apply" : "limited",
            PODLANE_MAP_EXEMPT, named(ntohl(key.ifindex)) + " " + to_string(key.addr)};
}

Decision of_route(const TracedStep &step, const Subject &) {
    static constexpr std::array<std::string_view, 10> kAnswers = {"",
                                                                  "blackhole",
                                                                  "unreachable",
                                                                  "prohibited",
                                                                  "not forwarded: the node's own address, or no route",
                                                                  "forwarding is off",
                                                                  "a tunnel of the route",
                                                                  "",
                                                                  "larger than the route's MTU",
                                                                  "no source address"};
    const auto fib = as<bpf_fib_lookup>(step.key);
    const std::int32_t answer = step.head.answer;
    Decision d{"route", "the kernel rejects the lookup", "", "FIB", answer == 0 || answer == BPF_FIB_LKUP_RET_NO_NEIGH};
    if (d.found) {
        const ip_addr hop = *(fib.family == AF_INET ? addr_from_bytes(&fib.ipv4_dst, sizeof fib.ipv4_dst)
                                                    : addr_from_bytes(fib.ipv6_dst, sizeof fib.ipv6_dst));
        d.answer =
            "by " + named(fib.ifindex) + " to " + to_string(hop) + (answer == 0 ? "" : ", whose MAC is not known yet");
    } else if (answer > 0 && static_cast<std::size_t>(answer) < kAnswers.size()) {
        d.answer = kAnswers.at(static_cast<std::size_t>(answer));
    }
    return d;
}

std::optional<Decision> decision_of(const TracedStep &step, const Subject &subject) {
    using Words = Decision (*)(const TracedStep &, const Subject &);
    static constexpr std::array<Words, 13> kByMap = {
        nullptr,         of_interface, of_address, of_path,      of_source,     of_uplink, of_cidr,
        of_source_route, of_bandwidth, of_flow,    of_isolation, of_group_cidr, of_exempt};
    if (step.head.kind == TRACE_ROUTE)
        return of_route(step, subject);
    if (step.head.kind == TRACE_COUNT || step.head.map >= kByMap.size() || kByMap.at(step.head.map) == nullptr)
        return std::nullopt;
    Decision decision = kByMap.at(step.head.map)(step, subject);
    decision.found = step.head.answer != 0;
    return decision;
}

std::string source_words(const interface &endpoint, std::uint32_t reason, const Subject &s) {
    switch (reason) {
    case REASON_DROP_SOURCE_MAC:
    case REASON_DROP_SOURCE_ADDRESS:
    case REASON_DROP_ARP_SPOOFED:
    case REASON_DROP_ND_SPOOFED:
    case REASON_DROP_VLAN:
    case REASON_DROP_ETHER_TYPE:
        return "refused: " + std::string(reason_sentence(reason));
    case REASON_SENT_SIBLING:
        return "of another interface of the container";
    default:
        break;
    }
    if ((endpoint.flags & INTERFACE_ANTI_SPOOF) == 0)
        return "not checked (antiSpoof is off)";
    return s.frame.is_ip ? to_string(s.frame.source) + " and its MAC may be sent from" : "its MAC is the endpoint's";
}

std::string verdict_words(int verdict) {
    switch (verdict) {
    case TC_ACT_SHOT:
        return "dropped";
    case TC_ACT_REDIRECT:
        return "redirected";
    case TC_ACT_UNSPEC:
        return "host stack";
    default:
        return std::to_string(verdict);
    }
}

// The check has no map of its own: its row follows the endpoint's entry, and the lookups it made.
void add_anti_spoofing(const TracedRun &run, const Subject &subject, Explanation &out) {
    const bool from_pod = !run.steps.empty() && run.steps.front().head.kind == TRACE_LOOKUP &&
                          run.steps.front().head.map == STEP_MAP_INTERFACES && run.steps.front().head.answer != 0;
    if (!from_pod || out.reason == REASON_DROP_MALFORMED || out.reason == REASON_RECEIVED_HOST)
        return;
    auto at = out.decisions.begin() + 1;
    while (at != out.decisions.end() && at->name == "source")
        ++at;
    out.decisions.insert(at, {kAntiSpoofing, source_words(as<interface>(run.steps.front().value), out.reason, subject),
                              PODLANE_MAP_INTERFACES, out.decisions.front().key, true});
}

// The last successful lookup in this map.
const TracedStep *last_found(const TracedRun &run, step_map map) {
    const auto found = std::find_if(run.steps.rbegin(), run.steps.rend(), [&](const TracedStep &step) {
        return step.head.kind == TRACE_LOOKUP && step.head.map == map && !step.value.empty();
    });
    return found == run.steps.rend() ? nullptr : &*found;
}

Next next_of(const TracedRun &run, std::uint32_t ifindex, const Explanation &so_far, const Subject &subject) {
    switch (so_far.reason) {
    case REASON_SENT_SIBLING:
        if (const TracedStep *route = last_found(run, STEP_MAP_SOURCE_ROUTES))
            return {PODLANE_PROGRAM_FROM_POD, as<source_route>(route->value).ifindex};
        break;
    case REASON_SENT_UPLINK:
    case REASON_SENT_WAY:
        if (const TracedStep *uplink = last_found(run, STEP_MAP_UPLINKS))
            return {PODLANE_PROGRAM_TO_UPLINK, as<std::uint32_t>(uplink->key), 0};
        break;
    case REASON_SENT_DIRECT:
    case REASON_UPLINK_DELIVERED:
        // Not counted at the receiver yet: it passes the qdisc that delays it first.
        for (const TracedStep &step : run.steps)
            if (so_far.counted.size() == 1 && step.head.map == STEP_MAP_ADDRESSES && !step.value.empty() &&
                as<address_key>(step.key).addr == subject.frame.destination)
                return {PODLANE_PROGRAM_TO_POD, as<address>(step.value).ifindex, ifindex};
        break;
    default:
        break;
    }
    return {};
}

} // namespace

std::string Names::pod_of(std::uint32_t ifindex) const {
    const auto found = std::ranges::find(endpoints, ifindex, [](const EndpointEntry &e) { return e.second.ifindex; });
    return found == endpoints.end() ? named(ifindex) : pod_words(found->first, found->second);
}

Explanation explain_run(const TracedRun &run, std::uint32_t ifindex, const Bytes &frame, const Names &names) {
    const Subject subject{names, read_frame(frame)};
    Explanation out;
    for (const TracedStep &step : run.steps) {
        if (step.head.kind == TRACE_COUNT)
            out.counted.push_back({as<std::uint32_t>(step.key), static_cast<std::uint32_t>(step.head.answer)});
        if (auto decision = decision_of(step, subject))
            out.decisions.push_back(std::move(*decision));
    }
    if (!out.counted.empty())
        out.reason = out.counted.front().reason;
    out.next = next_of(run, ifindex, out, subject);
    add_anti_spoofing(run, subject, out);
    out.verdict = verdict_words(run.verdict);
    return out;
}

} // namespace podlane::ctl
