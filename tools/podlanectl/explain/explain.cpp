// SPDX-License-Identifier: MIT
// explain: the verdict on a packet, and why, without sending it.
#include "tools/podlanectl/explain/explain.hpp"

#include "loader/attach.hpp"
#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "maps/entries.hpp"
#include "maps/text.hpp"
#include "tools/podlanectl/explain/nouns.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/network.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace podlane::ctl {
namespace {

using output::Column;
using output::text_cell;
using output::Tone;

constexpr std::uint16_t kSourcePort = 49152;
constexpr std::array<std::pair<std::string_view, std::uint8_t>, 4> kFlags = {
    {{"syn", TH_SYN}, {"ack", TH_ACK}, {"fin", TH_FIN | TH_ACK}, {"rst", TH_RST | TH_ACK}}};
constexpr const char *kUsage = "as in \"podlanectl explain --from default/web-0 --to 192.0.2.9:80\"";

// The hook a packet passes, and its owner.
struct Place {
    std::uint32_t ifindex = 0;
    std::string interface {};
    Hook hook = Hook::ingress;
    const char *program = PODLANE_PROGRAM_FROM_POD;
    const endpoint *owner = nullptr; // none: an uplink
    std::optional<std::uint32_t> came_by{};
};

struct Run {
    Place place;
    std::uint32_t program_id;
    std::string tag;
    Bytes frame;
    Explanation explanation;
};

struct Peer {
    ip_addr addr{};
    std::uint16_t port = 0;
};

// "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:80".
Result<Peer> parse_peer(const std::string &text) {
    std::string addr = text;
    std::string port;
    const std::size_t colon = text.rfind(':');
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        addr = text.substr(1, end == std::string::npos ? end : end - 1);
        port = end == std::string::npos || end + 1 == text.size() ? "" : text.substr(end + 2);
    } else if (colon != std::string::npos && text.find(':') == colon) {
        addr = text.substr(0, colon);
        port = text.substr(colon + 1);
    }
    const auto parsed = parse_ip(addr);
    const auto number = port.empty() ? std::uint16_t{0} : parse_number<std::uint16_t>(port);
    if (!parsed || !number)
        return usage_error("\"" + text + "\" is not an address with or without a port",
                           "as in 192.0.2.1:80 or [2001:db8::1]:80", parsed ? Error{} : parsed.error());
    return Peer{*parsed, *number};
}

Result<std::uint8_t> protocol_of(const Call &call, const Peer &to) {
    const std::string word = call.has(Opt::proto) ? *call.value(Opt::proto) : to.port != 0 ? "tcp" : "icmp";
    if (word == "tcp")
        return std::uint8_t{IPPROTO_TCP};
    if (word == "udp")
        return std::uint8_t{IPPROTO_UDP};
    if (word == "icmp")
        return is_ipv4(to.addr) ? std::uint8_t{IPPROTO_ICMP} : std::uint8_t{IPPROTO_ICMPV6};
    return usage_error("unknown protocol \"" + word + "\"", "tcp, udp or icmp");
}

// All but a SYN as a connection sends them that both sides have opened.
Result<std::uint8_t> flags_of(const Call &call, std::uint8_t protocol) {
    if (!call.has(Opt::flags))
        return std::uint8_t{TH_SYN};
    if (protocol != IPPROTO_TCP)
        return usage_error("only TCP packets have --flags", "leave it out, or name a port or --proto tcp");
    const std::string &word = *call.value(Opt::flags);
    for (const auto &[name, flags] : kFlags)
        if (word == name)
            return flags;
    return usage_error("unknown flags \"" + word + "\"", "syn, ack, fin or rst");
}

Result<Mac> interface_mac(const std::string &name) {
    net::Netlink netlink = TRY(net::Netlink::open());
    const auto link = TRY(net::find_link(netlink, name));
    return link ? link->mac : Mac{};
}

Result<ip_addr> own_address(const endpoint &record, bool ipv4) {
    for (const ip_addr &addr : addresses_in(record))
        if (is_ipv4(addr) == ipv4)
            return addr;
    return Error{ErrorCode::missing, std::string("the pod has no IPv") + (ipv4 ? "4" : "6") + " address",
                 "name another source with --source"};
}

Result<Question> question_of(const Call &call, const Place &place) {
    constexpr Mac kForeignMac{0x02, 0, 0, 0, 0, 0x01};
    const Peer to = TRY(parse_peer(*call.value(Opt::to)));
    Question question;
    question.destination = to.addr;
    question.destination_port = to.port;
    question.source_port = kSourcePort;
    question.protocol = TRY(protocol_of(call, to));
    question.tcp_flags = TRY(flags_of(call, question.protocol));
    if (call.has(Opt::source)) {
        const Peer source = TRY(parse_peer(*call.value(Opt::source)));
        question.source = source.addr;
        question.source_port = source.port == 0 ? kSourcePort : source.port;
    } else if (place.owner == nullptr || place.hook == Hook::egress) {
        return usage_error("explain needs the packet's source", "add --source ADDRESS");
    } else {
        question.source = TRY(own_address(*place.owner, is_ipv4(to.addr)));
    }
    if (is_ipv4(question.source) != is_ipv4(question.destination))
        return usage_error("source " + to_string(question.source) + " and destination " +
                               to_string(question.destination) + " are of different families",
                           "name two IPv4 addresses, or two IPv6 addresses");
    const std::string size = call.value(Opt::size).value_or("0");
    const auto bytes = parse_number<decltype(question.ip_bytes)>(size);
    if (!bytes)
        return usage_error("--size \"" + size + "\" is not a number of bytes");
    question.ip_bytes = *bytes;
    const Mac inside = place.owner == nullptr ? kForeignMac : to_mac(place.owner->pod_mac);
    const Mac outside = place.owner == nullptr ? TRY(interface_mac(place.interface)) : to_mac(place.owner->host_mac);
    question.to_mac = place.hook == Hook::ingress ? outside : inside;
    question.from_mac = place.hook == Hook::ingress ? inside : outside;
    return question;
}

// 0: no interface has this name.
Result<std::uint32_t> number_of_interface(const std::string &name) {
    const std::uint32_t ifindex = if_nametoindex(name.c_str());
    if (ifindex == 0 && errno != ENODEV)
        return system_error(ErrorCode::io_failure, "looking for interface " + name, errno);
    return ifindex;
}

Result<Place> place_of(const Call &call, const World &world, std::vector<EndpointEntry> &chosen) {
    const bool out = call.has(Opt::out);
    const std::string from = call.value(Opt::from).value_or("");
    const std::uint32_t ifindex = TRY(number_of_interface(from));
    for (const auto &[uplink_ifindex, entry] : TRY((read_map<std::uint32_t, uplink>(world.bpffs, PODLANE_MAP_UPLINKS))))
        if (ifindex != 0 && uplink_ifindex == ifindex)
            return Place{ifindex, from, out ? Hook::egress : Hook::ingress,
                         out ? PODLANE_PROGRAM_TO_UPLINK : PODLANE_PROGRAM_FROM_UPLINK, nullptr};
    Call named = call;
    named.argument = from;
    const Selection selection = TRY(Selection::of(named));
    if (selection.selects_all())
        return usage_error("explain needs the sender", kUsage);
    chosen = TRY(selected_endpoints(selection, world));
    if (chosen.size() > 1)
        return Error{ErrorCode::missing, selection.words() + " are " + std::to_string(chosen.size()) + " endpoints",
                     "name one by its host interface (\"podlanectl endpoint list\")"};
    const endpoint &record = chosen.front().second;
    return Place{record.ifindex, interface_name(record.ifindex), out ? Hook::egress : Hook::ingress,
                 out ? PODLANE_PROGRAM_TO_POD : PODLANE_PROGRAM_FROM_POD, &record};
}

// Runs the program that is attached to the hook.
Result<std::uint32_t> attached_id(const Place &place, const Tracer &tracer) {
    const std::string where =
        std::string(place.hook == Hook::ingress ? "ingress" : "egress") + " of " + place.interface;
    const auto ours = TRY(attached(place.ifindex, place.hook));
    if (ours.size() != 1)
        return Error{
            ErrorCode::missing,
            (ours.empty() ? "no program of Podlane is" : std::to_string(ours.size()) + " programs of Podlane are") +
                std::string(" on ") + where,
            "podlanectl upgrade --force repairs them"};
    const Fd program(bpf_prog_get_fd_by_id(ours.front().program_id));
    const ProgramFacts facts = TRY(program_facts(program.get()));
    if (facts.name != place.program || facts.tag != tracer.tag())
        return Error{ErrorCode::missing,
                     "the program on " + where + " is " + facts.name + " " + facts.tag + ", not " + place.program +
                         " " + tracer.tag(),
                     "podlanectl upgrade --force repairs them"};
    return facts.id;
}

constexpr std::array<Column<Counted>, 2> kCounted = {{
    {{"", "", "interface"}, [](const Counted &c) { return text_cell(interface_name(c.ifindex)); }},
    {{"", "", "reason"}, [](const Counted &c) { return text_cell(reason_name(c.reason)); }},
}};

constexpr std::array<Column<Decision>, 5> kDecisions = {{
    {{"DECISION", "", "decision"},
     [](const Decision &d) {
         return output::Cell{d.name, d.name == kAntiSpoofing ? "source check" : d.name, Tone::strong};
     }},
    {{"ANSWER", "", "answer"}, [](const Decision &d) { return text_cell(d.answer); }},
    {{"MAP", "", "map"}, [](const Decision &d) { return text_cell(d.map); }},
    {{"KEY", "", "key"}, [](const Decision &d) { return text_cell(d.key); }},
    {{"", "", "found"},
     [](const Decision &d) {
         return output::Cell{"", d.found};
     }},
}};

std::string kind_of(const Run &run) { return std::string(reason_kind_name(run.explanation.reason)); }

output::Value json_of(const Run &run) {
    return output::Object{{"interface", run.place.interface},
                          {"hook", run.place.hook == Hook::ingress ? "ingress" : "egress"},
                          {"program", run.place.program},
                          {"id", run.program_id},
                          {"tag", run.tag},
                          {"packet", frame_words(read_frame(run.frame))},
                          {"frame_bytes", std::uint64_t{run.frame.size()}},
                          {"decisions", output::table_value(output::make_table(kDecisions, run.explanation.decisions))},
                          {"reason", reason_name(run.explanation.reason)},
                          {"kind", kind_of(run)},
                          {"counted", output::table_value(output::make_table(kCounted, run.explanation.counted))},
                          {"verdict", run.explanation.verdict},
                          {"meaning", reason_sentence(run.explanation.reason)}};
}

std::string text_of(const Run &run, const World &world) {
    const bool drops = kind_of(run) == "drop";
    return "packet   " + frame_words(read_frame(run.frame)) + ", " + std::to_string(run.frame.size()) + " bytes\n" +
           "program  " + run.place.program + ", id " + std::to_string(run.program_id) + ", tag " + run.tag + ", on " +
           (run.place.hook == Hook::ingress ? "ingress" : "egress") + " of " + run.place.interface + "\n\n" +
           output::table_text(output::make_table(kDecisions, run.explanation.decisions), world.style) + "\nverdict  " +
           output::toned(run.explanation.verdict + " (" + reason_name(run.explanation.reason) + ")",
                         drops ? Tone::bad : Tone::good, world.style) +
           ": " + std::string(reason_sentence(run.explanation.reason)) + "\n";
}

Result<Run> run_at(const Place &place, const Bytes &frame, const Tracer &tracer, const Names &names, Bytes &left) {
    Run run{place, TRY(attached_id(place, tracer)), tracer.tag(), frame, {}};
    const TracedRun traced = TRY(tracer.run(place.ifindex, frame, place.came_by));
    run.explanation = explain_run(traced, place.ifindex, frame, names);
    left = traced.frame;
    return run;
}

// Without a program if no hook follows.
Place place_after(const Next &next) {
    if (next.program == nullptr)
        return {.program = nullptr};
    const bool in = std::string_view(next.program) == PODLANE_PROGRAM_FROM_POD;
    return {next.ifindex, interface_name(next.ifindex), in ? Hook::ingress : Hook::egress, next.program, nullptr,
            next.came_by};
}

Result<Bytes> frame_of(const Call &call, const Place &place) {
    constexpr std::size_t kMostShown = 64;
    const bool is_given = call.has(Opt::frame);
    auto frame = is_given ? frame_from_hex(*call.value(Opt::frame)) : build_frame(TRY(question_of(call, place)));
    if (frame)
        return frame;
    const std::string text = call.value(is_given ? Opt::frame : Opt::size).value_or("").substr(0, kMostShown);
    return usage_error("--" + std::string(is_given ? "frame" : "size") + " \"" + text + "\": " + frame.error().message);
}

// Follows the packet from program to program, until none of Podlane's follows.
Result<std::vector<Run>> follow(Place place, Bytes frame, const World &world) {
    constexpr std::size_t kMostRuns = 4;
    const Names names{TRY(selected_endpoints({}, world)), network_names(world)};
    std::map<std::string, Tracer> tracers;
    std::vector<Run> runs;
    while (place.program != nullptr && runs.size() < kMostRuns) {
        auto tracer = tracers.find(place.program);
        if (tracer == tracers.end())
            tracer = tracers.emplace(place.program, TRY(Tracer::load(world.bpffs, place.program))).first;
        Bytes left;
        runs.push_back(TRY(run_at(place, frame, tracer->second, names, left)));
        place = place_after(runs.back().explanation.next);
        frame = left;
    }
    return runs;
}

Result<int> explain(const Call &call, World &world) {
    if (call.has(Opt::to) == call.has(Opt::frame))
        return usage_error("explain needs --from and either --to or --frame", kUsage);
    TRY(check_live_directory(world.bpffs));
    std::vector<EndpointEntry> chosen;
    const Place place = TRY(place_of(call, world, chosen));
    const std::vector<Run> runs = TRY(follow(place, TRY(frame_of(call, place)), world));
    output::Array json;
    std::string text;
    for (const Run &run : runs) {
        json.emplace_back(json_of(run));
        text += (text.empty() ? "" : "\n") + text_of(run, world);
    }
    world.print(world.json ? output::json_text(output::Value(std::move(json))) : text);
    return 0;
}

constexpr std::array<Command, 1> kExplainCommands = {{
    {"",
     "Run the attached program over a packet built for the question, and print each decision.",
     kSelect | kRead | Opts{Opt::from, Opt::to, Opt::proto, Opt::source, Opt::size, Opt::flags, Opt::frame, Opt::out},
     {},
     "Nothing is sent, written or counted. --pod and the like select the sender as well. With an uplink as --from, "
     "and\n"
     "with --out, --source is needed. A packet that continues as of another interface of the container, or leaves by "
     "an\n"
     "uplink, is followed there. Of an established TCP connection: --source ADDR:PORT --flags ack.",
     explain},
}};

} // namespace

const Noun kExplainNoun = {"explain", "the verdict on a packet, and why", kExplainCommands};

} // namespace podlane::ctl
