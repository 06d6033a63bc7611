// SPDX-License-Identifier: MIT
// A container with two interfaces: datagrams that are forged on one network do not pull the queries of the other there.
// As beside ptp, a socket that is neither bound nor connected takes whatever is sent to its port; the true answer comes
// as well.
#include "tests/netns/attacker.hpp"
#include "tests/netns/datagram.hpp"
#include "tests/netns/reopened.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

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
    [[nodiscard]] static std::string question(int number) { return "query " + std::to_string(number); }
    // By whoever is on the network of net1, in the resolver's name, for every port that queries leave from.
    void forge() {
        const EchoServer server(lab_.client(0).ns(), ipv4(), kQueryPort);
        ASSERT_EQ(ask(pod_->ns(), Transport::udp, resolver()), 0);
        send_forged();
    }
    void send_forged() {
        const std::uint32_t veth = SourceLab::host_veth(*pod_, "net1");
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        const Mac gateway = Wire(lab_.node().ns(), "up1").mac();
        const Wire wire(lab_.provider(1).ns(), "eth0");
        Ends forged{resolver().addr, addr("net1"), kQueryPort, kFirst};
        for (; forged.destination_port < kFirst + 3 * kQueries; ++forged.destination_port)
            wire.send(frame(gateway, wire.mac(), udp(forged, forged_.size())));
        ASSERT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) >= before + 3 * kQueries; }))
            << "the forged datagrams do not arrive";
    }
    // Of the resolver, with this text.
    void expect_next(const Fd &socket, const std::string &text, const std::string &what) const {
        const Datagram next = awaited_datagram(socket);
        EXPECT_EQ(next.text, text) << what;
        EXPECT_EQ(to_string(next.from), to_string(resolver())) << what;
    }
    void expect_answers(const std::string &what, const std::function<Fd(int)> &query);
    [[nodiscard]] std::vector<Fd> speak_to(const Container &peer, const ip_addr &to, const std::string &text,
                                           bool has_options = false);
    void expect_answers_to(const std::string &what, std::vector<Fd> sockets);
    [[nodiscard]] std::vector<Datagram> take_questions(const Fd &server, const std::vector<Fd> &sockets, int first);

    const std::string forged_ = [] {
        const Bytes data = pattern(32);
        return std::string(data.begin(), data.end());
    }();
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

// Each query's own, before anything else, that came by eth0's network.
void AttackHijack::expect_answers(const std::string &what, const std::function<Fd(int)> &query) {
    const EchoServer server(lab_.client(0).ns(), ipv4(), kQueryPort);
    for (int i = 0; i < kQueries && !HasFailure(); ++i)
        expect_next(query(i), question(i), what);
    EXPECT_EQ(server.callers().size(), static_cast<std::size_t>(kQueries)) << what;
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr("eth0"))) << what;
}

// To what they send to the resolver after datagrams forged in its name have reached them.
void AttackHijack::expect_answers_to(const std::string &what, std::vector<Fd> sockets) {
    forge();
    expect_answers(what, [&](int i) {
        Fd socket = std::move(sockets.at(static_cast<std::size_t>(i)));
        expect_next(socket, forged_, what + ": the forged datagram does not arrive");
        EXPECT_TRUE(send_datagram(socket, resolver(), question(i)));
        return socket;
    });
}

// One of each socket to the resolver, as they arrive there.
std::vector<Datagram> AttackHijack::take_questions(const Fd &server, const std::vector<Fd> &sockets, int first) {
    const ip_addr own = addr("eth0");
    std::vector<Datagram> taken;
    for (const Fd &socket : sockets) {
        const std::string text = question(first + static_cast<int>(taken.size()));
        EXPECT_TRUE(send_datagram(socket, resolver(), text));
        const Datagram &one = taken.emplace_back(awaited_datagram(server));
        EXPECT_EQ(one.text, text);
        EXPECT_EQ(to_string(one.from), to_string(Endpoint{own, local_of(socket).port}));
        if (HasFailure())
            break;
    }
    return taken;
}

TEST_P(AttackHijack, QueriesOfBoundAndConnectedSocketsStayOnTheirInterface) {
    forge();
    for (const bool bound : {false, true})
        expect_answers(bound ? "bound" : "connected", [&](int i) {
            const auto port = static_cast<std::uint16_t>(kFirst + i + (bound ? kQueries : 0));
            Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4(), {bound ? addr("eth0") : ip_addr{}, port});
            EXPECT_EQ(connect_to(socket, resolver()), 0);
            EXPECT_EQ(send_text(socket, question(i)), 0);
            return socket;
        });
}

// As resolvers do that choose a port and do not connect.
TEST_P(AttackHijack, QueriesOfUnconnectedSocketsThatChoseAPortStayOnTheirInterface) {
    forge();
    expect_answers("unconnected", [&](int i) {
        const auto port = static_cast<std::uint16_t>(kFirst + i);
        Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4(), {{}, port});
        EXPECT_TRUE(send_datagram(socket, resolver(), question(i)));
        return socket;
    });
}

// As resolvers do that neither bind nor connect: the kernel chooses the port, one of those that were forged.
TEST_P(AttackHijack, QueriesOfSocketsThatChoseNoPortStayOnTheirInterface) {
    (void)must_run(pod_->ns(), {"sysctl", "-qw",
                                "net.ipv4.ip_local_port_range=" + std::to_string(kFirst) + " " +
                                    std::to_string(kFirst + 3 * kQueries - 1)});
    forge();
    expect_answers("unconnected", [&](int i) {
        Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4());
        EXPECT_TRUE(send_datagram(socket, resolver(), question(i)));
        EXPECT_GE(local_of(socket).port, kFirst);
        return socket;
    });
}

// Between a query and its answer, to sockets that spoke first: the next query goes where the one before went, and both
// are answered. A bound or a connected socket takes nothing that is sent to another address than its own.
TEST_P(AttackHijack, ForgedAnswersThatComeBeforeTheTrueOneMoveNoQuery) {
    forge();
    for (const std::string kind : {"connected", "bound", "unconnected"}) {
        SCOPED_TRACE(kind);
        const Fd server = open_socket(lab_.client(0).ns(), Transport::udp, ipv4(), resolver());
        Endpoint local{kind == "bound" ? addr("eth0") : ip_addr{}, kFirst};
        std::vector<Fd> sockets;
        for (; local.port < kFirst + kQueries; ++local.port) {
            sockets.push_back(open_socket(pod_->ns(), Transport::udp, ipv4(), local));
            ASSERT_EQ(kind == "connected" ? connect_to(sockets.back(), resolver()) : 0, 0);
        }
        const auto first = take_questions(server, sockets, 0);
        send_forged();
        ASSERT_FALSE(HasFailure());
        if (kind == "unconnected")
            for (const Fd &socket : sockets)
                expect_next(socket, forged_, "the forged datagram does not arrive");
        const auto second = take_questions(server, sockets, kQueries);
        for (const auto *questions : {&first, &second})
            for (std::size_t i = 0; i < questions->size() && !HasFailure(); ++i) {
                const Datagram &one = questions->at(i);
                EXPECT_TRUE(send_datagram(server, one.from, one.text));
                expect_next(sockets.at(i), one.text, "the answer");
            }
    }
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
