// podlanectl explain, against what then happens to the same packet.
#include "loader/trace.hpp"
#include "tests/netns/lab.hpp"

#include <gmock/gmock.h>
#include <net/if.h>

#include <map>
#include <set>

namespace podlane::test {
namespace {

using testing::HasSubstr;

std::string hex_of(const Bytes &bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4U];
        text += kDigits[byte & 15U];
    }
    return text;
}

class ExplainTest : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        lab_.emplace();
        a_ = lab_->add_pod(Json{{"attach", GetParam()}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}}});
        b_ = lab_->add_pod(
            Json{{"attach", GetParam()}, {"mtu", 1300}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48"}}});
        (void)must_run(lab_->outside(), words("ip route add 198.18.9.0/24 via 203.0.113.2"));
    }
    [[nodiscard]] Output ctl(const std::vector<std::string> &arguments) {
        std::vector<std::string> argv{std::getenv("PODLANECTL_BIN"), "--bpffs", lab_->node().bpffs(), "explain"};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return run(lab_->node().ns(), argv);
    }
    [[nodiscard]] Json ask(std::vector<std::string> arguments) {
        arguments.emplace_back("--json");
        const Output output = ctl(arguments);
        if (output.rc != 0)
            throw std::runtime_error(output.err);
        return Json::parse(output.out);
    }
    // All counters by interface and reason, as podlanectl tells them.
    [[nodiscard]] std::map<std::pair<std::string, std::string>, std::uint64_t> counts() {
        std::map<std::pair<std::string, std::string>, std::uint64_t> all;
        for (const Json &one :
             Json::parse(lab_->node().run(std::getenv("PODLANECTL_BIN") + std::string(" --json --bpffs ") +
                                          lab_->node().bpffs() + " counter list")))
            all[{one.at("host_interface").is_null() ? "" : one.at("host_interface").get<std::string>(),
                 one.at("reason")}] = one.at("packets");
        return all;
    }
    // What the command is told, without loading the program anew for each question.
    [[nodiscard]] std::string reason_of(const std::string &at, const char *program, const Bytes &frame) {
        const auto inside = require(net::enter(lab_->node().ns()));
        auto tracer = tracers_.find(program);
        if (tracer == tracers_.end())
            tracer = tracers_.emplace(program, require(Tracer::load(lab_->node().bpffs(), program))).first;
        for (const TracedStep &one : require(tracer->second.run(if_nametoindex(at.c_str()), frame)).steps)
            if (one.head.kind == TRACE_COUNT)
                return std::string(kReasons.at(static_cast<std::size_t>(one.head.answer)).name);
        return "none";
    }
    // Asks, then sends, and sees the reason that was told counted there, and nothing remembered before. (That nothing
    // is counted, packet/trace_test sees.)
    void compare(const std::string &name, const char *program, const std::string &at, const Wire &wire,
                 const Bytes &frame) {
        SCOPED_TRACE(name);
        const std::size_t paths = lab_->path_count();
        const std::pair<std::string, std::string> key{at, reason_of(at, program, frame)};
        EXPECT_EQ(lab_->path_count(), paths) << "a question is remembered";
        reasons_.insert(key.second);
        const auto untouched = counts();
        const std::uint64_t before = untouched.contains(key) ? untouched.at(key) : 0;
        wire.send(frame);
        EXPECT_TRUE(wait_until([&] {
            const auto now = counts();
            return now.contains(key) && now.at(key) > before;
        })) << key.second
            << "\n"
            << lab_->node().run(std::getenv("PODLANECTL_BIN") + std::string(" --bpffs ") + lab_->node().bpffs() +
                                " counter list");
    }

    std::optional<Lab> lab_;
    Pod a_;
    Pod b_;
    std::set<std::string> reasons_;
    std::map<std::string, Tracer> tracers_;
};

// What a pod sends: a packet for each reason that can be brought about by one.
TEST_P(ExplainTest, TellsWhatHappensToWhatAPodSends) {
    const Wire wire = a_.wire();
    const Ends to_b{a_.v4, b_.v4};
    const Ends to_b6{a_.v6, b_.v6};
    const Ends out{a_.v4, ip(Lab::kOutside4)};
    const Ends elsewhere{a_.v4, ip("198.18.77.7")}; // in the cluster, by the default route
    const auto send = [&](const std::string &name, const Packet &packet) {
        compare(name, PODLANE_PROGRAM_FROM_POD, a_.host_ifname, wire, frame(a_.gateway_mac, a_.mac, packet));
    };
    const auto changed = [](Packet packet, auto change) {
        change(packet);
        return packet;
    };
    send("udp to a pod", udp(to_b));
    send("udp again", udp(to_b));
    send("udp6 to a pod", udp(to_b6));
    send("syn to a pod", tcp({a_.v4, b_.v4, 40001, 8}, tcp_syn));
    send("syn again", tcp({a_.v4, b_.v4, 40001, 8}, tcp_syn));
    send("ack under way", tcp({a_.v4, b_.v4, 40002, 8}, tcp_ack));
    send("echo", echo_request(to_b, 7, 1));
    send("esp", other(to_b, 50));
    send("to itself", udp({a_.v4, a_.v4}));
    send("to the outside", udp(out));
    send("in the cluster", udp(elsewhere));
    send("in the cluster again", udp(elsewhere));
    send("too large for the receiver", udp(to_b, 1350));
    send("ttl 1", changed(udp(to_b), [](Packet &p) { p.hop_limit = 1; }));
    send("fragment", changed(udp(to_b), [](Packet &p) { p.fragment = 0x2000; }));
    send("options", changed(udp(to_b), [](Packet &p) { p.options = {1, 1, 1, 1}; }));
    send("checksum", changed(udp(to_b), [](Packet &p) { p.header_checksum = 1; }));
    send("length", changed(udp(to_b), [](Packet &p) { p.length = 21; }));
    send("version", changed(udp(to_b), [](Packet &p) { p.version_byte = 0x54; }));
    send("cut tcp", changed(other(to_b, IPPROTO_TCP, 6), [](Packet &) {}));
    send("stolen source", udp({b_.v4, ip(Lab::kOutside4)}));
    send("stolen source 6", udp({b_.v6, ip(Lab::kOutside6)}));
    send("link-local source", udp({a_.link_local, b_.v6}));
    const auto raw = [&](const std::string &name, const Bytes &bytes) {
        compare(name, PODLANE_PROGRAM_FROM_POD, a_.host_ifname, wire, bytes);
    };
    const Mac stranger{0x02, 0, 0, 0, 0, 0x66};
    raw("stolen MAC", frame(a_.gateway_mac, stranger, udp(to_b)));
    raw("to another MAC", frame(stranger, a_.mac, udp(to_b)));
    raw("no IP", frame(a_.gateway_mac, a_.mac, 0x88b5, pattern(46)));
    raw("arp for the gateway",
        frame(a_.gateway_mac, a_.mac, 0x0806, to_bytes(Arp{1, a_.mac, a_.v4, {}, ip("169.254.1.1")})));
    raw("arp for another", frame(a_.gateway_mac, a_.mac, 0x0806, to_bytes(Arp{1, a_.mac, a_.v4, {}, b_.v4})));
    raw("arp in another's name", frame(a_.gateway_mac, a_.mac, 0x0806, to_bytes(Arp{1, a_.mac, b_.v4, {}, a_.v4})));
    const auto gateway = ip("fe80::ecee:eeff:feee:eeee");
    raw("nd for the gateway",
        frame(a_.gateway_mac, a_.mac, neighbour({a_.link_local, gateway}, 135, 0, gateway, 1, a_.mac)));
    raw("nd for another", frame(a_.gateway_mac, a_.mac, neighbour({a_.link_local, gateway}, 135, 0, b_.v6, 1, a_.mac)));
    raw("nd in another's name",
        frame(a_.gateway_mac, a_.mac, neighbour({a_.link_local, gateway}, 136, 0, b_.v6, 2, a_.mac)));
    EXPECT_THAT(reasons_, testing::IsSupersetOf({"sent-direct",    "host-unknown-path",   "host-self",
                                                 "host-not-local", "sent-uplink",         "host-mtu",
                                                 "host-ttl",       "host-fragment",       "host-options",
                                                 "host-checksum",  "host-length",         "drop-malformed",
                                                 "host-no-flow",   "drop-source-address", "drop-source-mac",
                                                 "host-l2",        "host-not-ip",         "gateway-arp",
                                                 "host-arp",       "drop-arp-spoofed",    "gateway-nd",
                                                 "host-nd",        "drop-nd-spoofed",     "host-scope"}));
}

TEST_P(ExplainTest, TellsWhatHappensToWhatComesInByAnUplink) {
    const Wire wire(lab_->outside(), "eth0");
    const Mac up0 = Wire(lab_->node().ns(), "up0").mac();
    const auto send = [&](const std::string &name, const Packet &packet) {
        compare(name, PODLANE_PROGRAM_FROM_UPLINK, "up0", wire, frame(up0, wire.mac(), packet));
    };
    const ip_addr outside = ip(Lab::kOutside4);
    send("udp to a pod", udp({outside, a_.v4}));
    send("udp again", udp({outside, a_.v4}));
    send("ack under way", tcp({outside, a_.v4}, tcp_ack));
    send("to the node", udp({outside, ip(Lab::kNode4)}));
    send("a pod's source", udp({b_.v4, a_.v4}));
    send("too large", udp({outside, b_.v4}, 1350));
    EXPECT_THAT(reasons_, testing::IsSupersetOf({"uplink-delivered", "host-unknown-path", "host-not-local",
                                                 "host-source-local", "host-mtu"}));
}

TEST_P(ExplainTest, FindsRoutesThatAreNone) {
    lab_->node().run("ip route add blackhole 198.18.66.0/24");
    lab_->node().run("ip link add dead0 type veth peer name dead1");
    lab_->node().run("ip link set dead0 up");
    lab_->node().run("ip link set dead1 up");
    lab_->node().run("ip route add 198.18.67.0/24 dev dead0");
    const Wire wire = a_.wire();
    for (const auto &[to, why] :
         {std::pair("198.18.66.1", "host-no-route"), std::pair("198.18.67.1", "host-no-uplink")}) {
        const Bytes bytes = frame(a_.gateway_mac, a_.mac, udp({a_.v4, ip(to)}));
        EXPECT_EQ(ask({"--from", a_.host_ifname, "--frame", hex_of(bytes)}).at(0).at("reason"), why);
        compare(why, PODLANE_PROGRAM_FROM_POD, a_.host_ifname, wire, bytes);
    }
}

TEST_P(ExplainTest, BuildsThePacketForTheQuestion) {
    const Json answer = ask({"--from", to_string(a_.v4), "--to", to_string(b_.v4) + ":80"}).at(0);
    EXPECT_EQ(answer.at("reason"), "sent-direct");
    EXPECT_EQ(answer.at("verdict"), "redirected");
    EXPECT_EQ(answer.at("packet"), "tcp " + to_string(a_.v4) + ":49152 > " + to_string(b_.v4) + ":80");
    std::vector<std::string> asked;
    for (const Json &decision : answer.at("decisions"))
        asked.push_back(decision.at("decision"));
    EXPECT_EQ(asked, (std::vector<std::string>{"endpoint", "source check", "receiver", "path memory", "path memory",
                                               "would write", "would write"}));
    EXPECT_EQ(answer.at("decisions").at(2).at("map"), PODLANE_MAP_ADDRESSES);
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", to_string(b_.v6)}).at(0).at("reason"), "sent-direct");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", to_string(b_.v4), "--size", "1400"}).at(0).at("reason"),
              "host-mtu");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--to", Lab::kOutside4, "--source", to_string(b_.v4)}).at(0).at("reason"),
              "drop-source-address");
    EXPECT_EQ(ask({"--from", a_.host_ifname, "--out", "--source", Lab::kOutside4, "--to", to_string(a_.v4) + ":80"})
                  .at(0)
                  .at("reason"),
              "received-host");
    EXPECT_EQ(ask({"--from", "up0", "--out", "--source", Lab::kNode4, "--to", Lab::kOutside4}).at(0).at("reason"),
              "uplink-sent-host");
    const Output text = ctl({"--from", a_.host_ifname, "--to", to_string(b_.v4) + ":80", "--proto", "udp"});
    EXPECT_THAT(text.out, HasSubstr("verdict  redirected (sent-direct): to a pod of this node"));
    EXPECT_THAT(ctl({"--from", a_.host_ifname}).err, HasSubstr("explain needs --from and either --to or --frame"));
    EXPECT_THAT(ctl({"--from", "nobody", "--to", "192.0.2.1"}).err, HasSubstr("nobody"));
}

// An answer for another program than the one on the hook would be worth nothing.
TEST_P(ExplainTest, RefusesToAnswerForAnotherProgram) {
    lab_->node().run("tc filter del dev " + a_.host_ifname + " ingress prio 20");
    EXPECT_THAT(ctl({"--from", a_.host_ifname, "--to", to_string(b_.v4)}).err,
                HasSubstr("no program of Podlane is on ingress of " + a_.host_ifname));
}

INSTANTIATE_TEST_SUITE_P(Hooks, ExplainTest, testing::Values("clsact"), [](const auto &info) { return info.param; });

} // namespace
} // namespace podlane::test
