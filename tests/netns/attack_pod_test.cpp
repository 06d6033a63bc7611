// SPDX-License-Identifier: MIT
// A hostile pod beside others: what its process can do without capabilities, and with CAP_NET_RAW, which pods have by
// default. The outcome is asserted on the victims.
#include "tests/harness/bpf.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/captured.hpp"
#include "tests/netns/datagram.hpp"
#include "tests/netns/service_test.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// A datagram from any address at all (IPV6_FREEBIND needs no capability).
void send_from(const ip_addr &source, const ip_addr &destination, const std::string &text = "x") {
    const Fd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    constexpr int kFreebind = 78; // IPV6_FREEBIND, which glibc 2.36 does not name
    must_not_fail(setsockopt(socket.get(), IPPROTO_IPV6, kFreebind, &on, sizeof on), "IPV6_FREEBIND");
    const sockaddr_in6 from = to_sockaddr(source, 0);
    const sockaddr_in6 to = to_sockaddr(destination, kPort);
    must_not_fail(bind(socket.get(), reinterpret_cast<const sockaddr *>(&from), sizeof from), "bind"); // NOLINT
    const auto *to_addr = reinterpret_cast<const sockaddr *>(&to);                                     // NOLINT
    must_not_fail(sendto(socket.get(), text.data(), text.size(), 0, to_addr, sizeof to) < 0, "sendto");
}

class AttackPeerInterfaces : public testing::Test {
  protected:
    void SetUp() override {
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0, {{"maxEndpoints", 8}});
        lab_.add(pod_, "net1", 1, {{"maxEndpoints", 8}});
    }
    // Packets by reason at both host-side veths of the pod, as podlanectl prints them.
    [[nodiscard]] std::uint64_t counted(const std::string &why) const {
        std::uint64_t packets = 0;
        for (const Json &row : lab_.node().podlanectl_json("counter list"))
            if (row.at("reason") == why)
                packets += row.at("packets").get<std::uint64_t>();
        return packets;
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

// Numbers of slots, written as addresses: found as sources, their packets went round between both veths for ever.
TEST_F(AttackPeerInterfaces, NoPacketGoesRoundBetweenTheInterfaces) {
    const std::uint64_t before = counted("drop-source-address");
    const std::vector<std::string> claimed = {"::100:0", "::100:0:100:0", "::200:0", "::100:0:0:0"};
    as_hostile(pod_->ns(), Privilege::none, [&] {
        for (const std::string &source : claimed)
            send_from(ip(source), ip(SourceLab::client_addr(0, false)));
    });
    EXPECT_TRUE(wait_until([&] { return counted("drop-source-address") >= before + claimed.size(); }));
    EXPECT_LE(counted("sent-sibling"), claimed.size()) << "handed over more than once";
}

// The third interface's ADD fails when the tables of the first two are written already: they get back what they had.
TEST_F(AttackPeerInterfaces, AFailedAddLeavesTheOtherInterfacesAlone) {
    const std::string root = lab_.node().bpffs();
    const SourceSlots slots = require(open_source_slots(root, Access::read_write));
    const auto contents = [&] {
        return map_entries(root, {PODLANE_MAP_COUNTERS, PODLANE_MAP_PATHS, PODLANE_MAP_EVENTS, PODLANE_MAP_HISTORY});
    };
    const auto before = contents();
    std::uint32_t filled = 0;
    while (slots.update({100000 + filled, 1, 1}, source_route{}))
        ++filled;
    const Reply refused =
        lab_.try_add(pod_, {"net2", SourceLab::network_name(2), {lab_.network(2, {{"maxEndpoints", 8}})}});
    EXPECT_NE(refused.rc, 0);
    EXPECT_NE(refused.out.find(PODLANE_MAP_SOURCE_SLOTS), std::string::npos) << refused;
    while (filled-- > 0)
        ASSERT_TRUE(require(slots.remove({100000 + filled, 1, 1})));
    const auto after = contents();
    for (const auto &[map, entries] : before)
        EXPECT_EQ(after.at(map), entries) << map;
    for (const bool ipv4 : {true, false}) {
        const EchoServer server(pod_->ns(), ipv4, kPort);
        for (const int number : {0, 1})
            for (const char *how : kHows)
                EXPECT_TRUE(gets_answer(lab_.client(number).ns(), how,
                                        SourceLab::addr(*pod_, number == 0 ? "eth0" : "net1", ipv4), kPort))
                    << how << number;
    }
}

// Entries that the plugin never writes: at either host-side veth they lead a source to the other one, and nothing
// checks it. Parameter: IPv4.
class AttackPeerRoutes : public AttackPeerInterfaces, public testing::WithParamInterface<bool> {
  protected:
    using Texts = std::multiset<std::string>;

    void SetUp() override {
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0, {{"antiSpoof", false}});
        lab_.add(pod_, "net1", 1, {{"antiSpoof", false}});
        for (const Json &one : Json::parse(lab_.node().run("ip -j link show type veth")))
            if (one.at("ifindex") == veth("eth0") || one.at("ifindex") == veth("net1"))
                wires_.emplace_back(lab_.node().ns(), one.at("ifname"));
    }
    [[nodiscard]] std::uint32_t veth(const char *ifname) const { return SourceLab::host_veth(*pod_, ifname); }
    [[nodiscard]] ip_addr addr(const char *ifname) const { return SourceLab::addr(*pod_, ifname, GetParam()); }
    void lead_round(const ip_addr &source) const {
        const SourceRoutes routes = require(open_source_routes(lab_.node().bpffs(), Access::read_write));
        for (const auto &[from, to] : {std::pair{"eth0", "net1"}, std::pair{"net1", "eth0"}}) {
            source_route route = *require(routes.find({veth(from), addr(to)}));
            route.source = source;
            require(routes.update({veth(from), source}, route));
        }
    }
    // At each host-side veth.
    void expect_once(const Texts &sent) const {
        EXPECT_EQ(wires_.size(), 2U);
        for (const Wire &wire : wires_) {
            Texts came;
            const auto is_too_much = [&](const Bytes &one) {
                const auto text = std::search(one.begin(), one.end(), text_.begin(), text_.end());
                if (text != one.end())
                    came.emplace(text, one.end());
                return came.size() > sent.size();
            };
            (void)wire.until(is_too_much, quiet());
            EXPECT_EQ(came, sent);
        }
    }

    std::string text_ = "round and round ";
    std::vector<Wire> wires_;
};

TEST_P(AttackPeerRoutes, ThatPointAtEachOtherHandOverOnce) {
    const std::string client = SourceLab::client_addr(0, GetParam());
    std::vector<ip_addr> sources{addr("eth0"), addr("net1")};
    if (!GetParam()) // of IPv4 a process without capabilities claims none
        sources.push_back(ip("2001:db8:77::9"));
    for (const ip_addr &source : sources)
        lead_round(source);
    const auto victim = lab_.node().container();
    lab_.add(victim, "eth0", 0);
    Texts sent;
    as_hostile(pod_->ns(), Privilege::none, [&] {
        for (int i = 0; i < 20; ++i)
            for (const ip_addr &source : sources)
                send_from(source, ip(client), *sent.insert(text_ + std::to_string(sent.size())));
    });
    EXPECT_TRUE(wait_until([&] { return counted("sent-sibling") >= sent.size(); })) << "not all are handed over";
    EXPECT_TRUE(ping(victim->ns(), client, 5)) << "meanwhile";
    expect_once(sent);
}

// The source of an unbound socket's reply is written on the way, and has such entries then.
TEST_P(AttackPeerRoutes, ThatPointAtEachOtherHandAReplyOverOnce) {
    lead_round(addr("net1"));
    const EchoServer server(pod_->ns(), GetParam(), kPort);
    EXPECT_EQ(ask(lab_.client(1).ns(), Transport::udp, {addr("net1"), kPort}, text_), 0);
    expect_once({text_});
}

INSTANTIATE_TEST_SUITE_P(All, AttackPeerRoutes, testing::Bool(), family_name);

// Sends a frame again and again until it goes or the interface does.
Repeat flood(const Wire &wire, Bytes frame) {
    return Repeat([&wire, frame = std::move(frame), is_there = true]() mutable {
        try {
            if (is_there)
                wire.send(frame);
        } catch (const std::exception &) {
            is_there = false;
        }
    });
}

class AttackDel : public LabTest {
  protected:
    // Else the host stack drops the forged source itself.
    void prepare() override {
        for (const char *of : {"all", "default", "up0"})
            lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=0");
    }
    [[nodiscard]] Pod attach(bool is_behind_ptp, const Json &keys = Json::object()) {
        if (!is_behind_ptp)
            return add_pod(keys);
        Json ptp = {{"type", "ptp"}, {"ipam", lab_->node().config().at("ipam")}};
        ptp["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        Json after = with_attach(keys);
        after["type"] = "podlane";
        after["bpffs"] = lab_->node().bpffs();
        return lab_->add_pod(std::vector<Json>{ptp, after});
    }
    [[nodiscard]] Bytes forged(const Pod &by, std::size_t data) const {
        const Ends ends{ip(ipv4() ? "198.51.100.9" : "2001:db8:77::9"), outside_addr()};
        return frame(by.gateway_mac, by.mac, udp(ends, data));
    }
    // The test's own foundation: nothing but the programs is in the way of such frames.
    void expect_passing_without_anti_spoof() {
        constexpr std::size_t kData = 16; // less than is looked for after it
        for (const bool is_behind_ptp : {false, true}) {
            const Wire outside(lab_->outside(), "eth0");
            const Pod pod = attach(is_behind_ptp, {{"antiSpoof", false}});
            const Wire wire = pod.wire();
            const Repeat sending = flood(wire, forged(pod, kData));
            EXPECT_TRUE(outside.until([](const Bytes &one) { return contains(one, pattern(kData)); }, patience()))
                << (is_behind_ptp ? "behind ptp" : "alone");
        }
    }
};

// From the first to the last moment of DEL nothing with a forged source leaves the node.
TEST_P(AttackDel, NothingForgedPasses) {
    constexpr std::size_t kData = 24;
    const Pod other = add_pod(); // the network stays
    expect_passing_without_anti_spoof();
    const Wire outside(lab_->outside(), "eth0");
    for (int round = 0; round < 6; ++round) {
        const Pod pod = attach(round % 2 != 0);
        const Wire wire = pod.wire();
        const std::uint64_t before = lab_->count(pod, REASON_DROP_SOURCE_ADDRESS);
        {
            const Repeat sending = flood(wire, forged(pod, kData));
            ASSERT_TRUE(wait_until([&] { return lab_->count(pod, REASON_DROP_SOURCE_ADDRESS) > before + 100; }));
            EXPECT_EQ(pod.chain->del(*pod.container).rc, 0);
        }
        const Bytes needle = pattern(kData);
        std::size_t passed = 0;
        for (const Bytes &one : outside.arrived())
            passed += contains(one, needle) ? 1 : 0;
        EXPECT_EQ(passed, 0U) << "round " << round;
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttackDel, lab_parameters(), lab_parameter_name);

// A client's socket, which takes nothing that comes from another address than the one it sends to, and the socket of a
// server that answers when it is to.
struct LateTalk {
    std::string name;
    Fd client;
    const Fd *server = nullptr;
    ip_addr seen{}; // by the server, in the place of the client's
    Endpoint caller{};

    [[nodiscard]] std::uint16_t port() const { return htons(local_of(client).port); }
    void question() {
        EXPECT_EQ(send_text(client, name), 0);
        const Datagram one = awaited_datagram(*server);
        EXPECT_EQ(one.text, name);
        EXPECT_EQ(to_string(one.from.addr), to_string(seen)) << name;
        caller = one.from;
    }
    void answer() const {
        EXPECT_TRUE(send_datagram(*server, caller, name));
        EXPECT_EQ(receive(client).text, name);
    }
};

// With as few entries as AttackSmallCache has. The packets are translated: by a Service, by ipMasq and by a hostPort.
class AttackEvicted : public ServiceTest {
  protected:
    static constexpr std::uint16_t kBackendPort = 5300;
    static constexpr std::uint16_t kHostPort = 5301;
    static constexpr std::uint16_t kFirstPort = 20000; // below those that the kernel chooses

    explicit AttackEvicted(Json keys = {{"firstPacket", "host"}})
        : ServiceTest(kPort, kBackendPort), every_key_(std::move(keys)) {
        every_key_.update({{"maxPaths", 512}, {"ipMasq", true}});
    }
    void prepare() override {
        client_ = add_pod();
        server_ = add_pod();
        serve(server_);
        hosted_ = lab_->add_pod({lab_->node().config(with_attach(every_key_)),
                                 {{"type", "portmap"}, {"snat", true}, {"capabilities", {{"portMappings", true}}}}},
                                port_mappings(kHostPort, kBackendPort));
        for (const net::Namespace *where : {&server_.ns(), &lab_->outside(), &hosted_.ns()})
            servers_.push_back(open_socket(*where, Transport::udp, ipv4(), {{}, kBackendPort}));
        // A question is not to expire before its answer where the flood takes long.
        lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=300");
    }
    Pod add_pod() { return LabTest::add_pod(every_key_); }
    // One of each kind.
    void begin_talks(std::vector<LateTalk> &talks) const {
        const auto begin = [&](const std::string &kind, const net::Namespace &from, const Endpoint &to,
                               const ip_addr &seen) {
            const auto port = static_cast<std::uint16_t>(kFirstPort + talks.size());
            talks.push_back({kind + " " + std::to_string(port), test::connected(from, Transport::udp, to, {{}, port}),
                             &servers_.at(talks.size() % servers_.size()), seen});
        };
        begin("service", client_.ns(), cluster_ip(), addr(client_));
        begin("masquerade", client_.ns(), {outside_addr(), kBackendPort}, node_addr());
        begin("hostPort", lab_->outside(), {node_addr(), kHostPort}, outside_addr());
    }
    template <typename Value> [[nodiscard]] bool is_in(const char *map, const LateTalk &talk) {
        const auto all = require(Map<flow_key, Value>::open(pin_path(lab_->node().bpffs(), map), Access::read_only));
        return std::ranges::any_of(require(all.entries()), [port = talk.port()](const auto &entry) {
            return entry.first.source_port == port || entry.first.destination_port == port;
        });
    }
    [[nodiscard]] bool is_in_flows(const LateTalk &talk) { return is_in<flow>(PODLANE_MAP_FLOWS, talk); }
    [[nodiscard]] bool is_noted(const LateTalk &talk) {
        return is_in_flows(talk) || is_in<forwarded>(PODLANE_MAP_FORWARDED, talk);
    }
    void expect_late_answers();

    Json every_key_;
    Pod hosted_;
    std::vector<Fd> servers_;
};

// The server has the question, and answers when nothing of it is cached any more: a first question. One of a
// conversation on the fast path may stay, as it was used more often.
void AttackEvicted::expect_late_answers() {
    const Pod hostile = add_pod();
    const Pod accomplice = add_pod();
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    const OneCpu one; // the maps list for each CPU on its own what was used last
    const EchoServer within(accomplice.ns(), ipv4(), kPort);
    const EchoServer without(lab_->outside(), ipv4(), kPort);
    std::vector<LateTalk> talks;
    begin_talks(talks);
    ASSERT_TRUE(wait_until([&] {
        for (LateTalk &talk : talks) {
            talk.question();
            talk.answer();
        }
        return HasFailure() || std::ranges::all_of(talks, [&](const auto &talk) { return is_in_flows(talk); });
    }));
    const std::size_t conversations = talks.size();
    begin_talks(talks);
    for (LateTalk &talk : talks) {
        talk.question();
        EXPECT_TRUE(is_noted(talk)) << talk.name;
    }
    ASSERT_FALSE(HasFailure());
    std::atomic<bool> stop = false;
    std::thread outside([&] { flood_answered(lab_->outside(), {{addr(accomplice), kPort}}, ipv4(), stop); });
    std::thread inside([&] {
        flood_answered(hostile.ns(), {{addr(accomplice), kPort}, {outside_addr(), kPort}}, ipv4(), stop);
    });
    EXPECT_TRUE(wait_until([&] {
        return std::ranges::none_of(std::span(talks).subspan(conversations),
                                    [&](const auto &talk) { return is_noted(talk); });
    }));
    for (LateTalk &talk : talks) {
        talk.answer();
        talk.question();
        talk.answer();
    }
    stop = true;
    outside.join();
    inside.join();
}

TEST_P(AttackEvicted, LateAnswersAreTranslated) { expect_late_answers(); }

class AttackEvictedDirect : public AttackEvicted {
  protected:
    // The cluster's ranges hold the Service, as people write them.
    AttackEvictedDirect()
        : AttackEvicted({{"firstPacket", "direct"},
                         {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48", "2001:db8:5e::/48"}}}) {}
};

TEST_P(AttackEvictedDirect, LateAnswersAreTranslated) { expect_late_answers(); }

INSTANTIATE_TEST_SUITE_P(All, AttackEvicted, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, AttackEvictedDirect, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
