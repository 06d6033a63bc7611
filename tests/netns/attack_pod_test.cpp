// SPDX-License-Identifier: MIT
// A hostile pod beside others: what its process can do without capabilities, and with CAP_NET_RAW, which pods have by
// default. The outcome is asserted on the victims.
// A container with two interfaces: datagrams that are forged on one network do not pull the queries of the other there.
#include "tests/harness/bpf.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/reopened.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// A datagram from any address at all (IPV6_FREEBIND needs no capability).
void send_from(const ip_addr &source, const ip_addr &destination) {
    const Fd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    constexpr int kFreebind = 78; // IPV6_FREEBIND, which glibc 2.36 does not name
    must_not_fail(setsockopt(socket.get(), IPPROTO_IPV6, kFreebind, &on, sizeof on), "IPV6_FREEBIND");
    const sockaddr_in6 from = to_sockaddr(source, 0);
    const sockaddr_in6 to = to_sockaddr(destination, kPort);
    must_not_fail(bind(socket.get(), reinterpret_cast<const sockaddr *>(&from), sizeof from), "bind"); // NOLINT
    if (sendto(socket.get(), "x", 1, 0, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 1)      // NOLINT
        throw std::runtime_error(std::string("sendto: ") + std::strerror(errno));
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

constexpr std::uint16_t kQueryPort = 53;
constexpr std::uint16_t kFirst = 20000;
constexpr int kQueries = 20;

// Parameter: IPv4.
class AttackHijack : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        // As on nodes whose networks are routed asymmetrically: the source is not checked for the forger.
        for (const char *where : {"all", "default", "up0", "up1"})
            lab_.node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
        lab_.node().run("ip -6 route add " + SourceLab::client_addr(0, false) + " via " +
                        SourceLab::on_link(0, 1, false));
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0, {{"firstPacket", "host"}});
        lab_.add(pod_, "net1", 1, {{"firstPacket", "host"}});
    }
    [[nodiscard]] bool ipv4() const { return GetParam(); }
    [[nodiscard]] ip_addr addr(const std::string &ifname) const { return SourceLab::addr(*pod_, ifname, ipv4()); }
    [[nodiscard]] Endpoint resolver() const { return {ip(SourceLab::client_addr(0, ipv4())), kQueryPort}; }
    // By whoever is on the network of net1, in the resolver's name, for every port that will ask.
    void forge() {
        const EchoServer server(lab_.client(0).ns(), ipv4(), kQueryPort);
        ASSERT_EQ(ask(pod_->ns(), Transport::udp, resolver()), 0);
        const std::uint32_t veth = SourceLab::host_veth(*pod_, "net1");
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        const Mac gateway = Wire(lab_.node().ns(), "up1").mac();
        const Wire wire(lab_.provider(1).ns(), "eth0");
        for (int i = 0; i < 3 * kQueries; ++i) {
            const Ends forged{resolver().addr, addr("net1"), kQueryPort, static_cast<std::uint16_t>(kFirst + i)};
            wire.send(frame(gateway, wire.mac(), udp(forged)));
        }
        ASSERT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) >= before + 3 * kQueries; }))
            << "the forged datagrams do not arrive";
    }
    void expect_answers(const std::string &what, const std::function<Fd(int)> &query);
    [[nodiscard]] std::vector<Fd> speak_to(const Container &peer, const ip_addr &to, const std::string &text,
                                           bool has_options = false);
    void expect_answers_to(const std::string &what, std::vector<Fd> sockets);

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

struct SocketOptions : Reopened {
    using Reopened::set_options;
};

// Sockets that chose their ports, have sent this text to a peer before they received any, and got it back.
std::vector<Fd> AttackHijack::speak_to(const Container &peer, const ip_addr &to, const std::string &text,
                                       bool has_options) {
    const EchoServer server(peer.ns(), ipv4(), kQueryPort);
    std::vector<Fd> sockets;
    for (int i = 0; i < kQueries; ++i) {
        const auto port = static_cast<std::uint16_t>(kFirst + i);
        const Fd &socket = sockets.emplace_back(open_socket(pod_->ns(), Transport::udp, ipv4(), {{}, port}));
        if (has_options)
            SocketOptions::set_options(socket, ipv4());
        EXPECT_TRUE(send_datagram(socket, {to, kQueryPort}, text));
        EXPECT_EQ(receive(socket).text, text);
        if (has_options)
            SocketOptions::set_options(socket, ipv4(), false);
    }
    return sockets;
}

// An answer that came by eth0's network.
void AttackHijack::expect_answers(const std::string &what, const std::function<Fd(int)> &query) {
    const EchoServer server(lab_.client(0).ns(), ipv4(), kQueryPort);
    int answers = 0;
    for (int i = 0; i < kQueries; ++i) {
        const Fd socket = query(i);
        answers += wait_until([&] { return recv(socket.get(), nullptr, 0, MSG_DONTWAIT) >= 0; }, quiet()) ? 1 : 0;
    }
    EXPECT_EQ(answers, kQueries) << what;
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr("eth0"))) << what;
}

// To what they send to the resolver after datagrams forged in its name have reached them.
void AttackHijack::expect_answers_to(const std::string &what, std::vector<Fd> sockets) {
    forge();
    expect_answers(what, [&](int i) {
        Fd socket = std::move(sockets.at(static_cast<std::size_t>(i)));
        EXPECT_EQ(receive(socket).error, 0) << what << ": the forged datagram does not arrive";
        EXPECT_TRUE(send_datagram(socket, resolver(), "query"));
        return socket;
    });
}

TEST_P(AttackHijack, QueriesOfBoundAndConnectedSocketsStayOnTheirInterface) {
    forge();
    for (const bool bound : {false, true})
        expect_answers(bound ? "bound" : "connected", [&](int i) {
            const auto port = static_cast<std::uint16_t>(kFirst + i + (bound ? kQueries : 0));
            Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4(), {bound ? addr("eth0") : ip_addr{}, port});
            EXPECT_EQ(connect_to(socket, resolver()), 0);
            EXPECT_EQ(send_text(socket, "query"), 0);
            return socket;
        });
}

// As resolvers do that choose a port and do not connect.
TEST_P(AttackHijack, QueriesOfUnconnectedSocketsThatChoseAPortStayOnTheirInterface) {
    forge();
    expect_answers("unconnected", [&](int i) {
        const auto port = static_cast<std::uint16_t>(kFirst + i);
        Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4(), {{}, port});
        EXPECT_TRUE(send_datagram(socket, resolver(), "query"));
        return socket;
    });
}

// As resolvers do that neither bind nor connect: the kernel chooses the port, one of those that were forged.
TEST_P(AttackHijack, QueriesOfSocketsThatChoseNoPortStayOnTheirInterface) {
    (void)must_run(pod_->ns(), {"sysctl", "-qw",
                                "net.ipv4.ip_local_port_range=" + std::to_string(kFirst) + " " +
                                    std::to_string(kFirst + 3 * kQueries - 1)});
    forge();
    expect_answers("unconnected", [&](int) {
        Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4());
        EXPECT_TRUE(send_datagram(socket, resolver(), "query"));
        EXPECT_GE(local_of(socket).port, kFirst);
        return socket;
    });
}

// Who speaks first is noted, whatever the packet is that says so: only the host stack carries these.
TEST_P(AttackHijack, QueriesOfSocketsThatSentFragmentsFirstStayOnTheirInterface) {
    const ip_addr other = ip(SourceLab::on_link(0, 1, ipv4()));
    expect_answers_to("fragments", speak_to(lab_.provider(0), other, std::string(3000, 'x')));
}

TEST_P(AttackHijack, QueriesOfSocketsThatSentOptionsFirstStayOnTheirInterface) {
    const ip_addr other = ip(SourceLab::on_link(0, 1, ipv4()));
    expect_answers_to("options", speak_to(lab_.provider(0), other, "hello", true));
}

TEST_P(AttackHijack, QueriesOfSocketsThatSpokeBeforeAnUpgradeStayOnTheirInterface) {
    std::vector<Fd> sockets = speak_to(lab_.provider(0), ip(SourceLab::on_link(0, 1, ipv4())), "hello");
    const Output done = lab_.node().podlanectl("upgrade --force");
    ASSERT_EQ(done.rc, 0) << done.out << done.err;
    expect_answers_to("upgrade", std::move(sockets));
}

// Nobody has noted who spoke first, but conntrack knows the conversation. A strict reverse path filter with rules by
// source, as docs/SOURCE-ROUTING.md advises, lets what is forged pass.
TEST_P(AttackHijack, ConversationsThatBeganBeforeTheOtherInterfaceCameStayOnTheirs) {
    for (const char *filter : {"0", "1"}) {
        for (const char *where : {"all", "default", "up0", "up1"})
            lab_.node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=" + filter);
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0, {{"firstPacket", "host"}});
        std::vector<Fd> sockets = speak_to(lab_.client(0), resolver().addr, "hello");
        lab_.add(pod_, "net1", 1, {{"firstPacket", "host"}});
        expect_answers_to(std::string("rp_filter=") + filter, std::move(sockets));
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttackHijack, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "V4" : "V6"); });

} // namespace
} // namespace podlane::test
