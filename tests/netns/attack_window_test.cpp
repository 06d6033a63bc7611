// SPDX-License-Identifier: MIT
// A hostile host on the uplink announces a window in a pod's name: acknowledgments with numbers of its own choice,
// which the node forwards back. Ends in the name of the pod's peer that fit this window do not end the connection in
// conntrack.
#include "tests/netns/conntrack.hpp"
#include "tests/netns/segments.hpp"

#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kOwnPort = 40123;
// The time-out of a connection after a reset that conntrack believes, in seconds (before: 5 days), as set here.
constexpr std::uint64_t kBelieved = 1;

// `masqueraded`: the peer knows the pod by the node's address.
class AttackWindow : public LabTestOf<std::tuple<LabParameter, bool>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<0>(GetParam()); }
    [[nodiscard]] static bool masqueraded() { return std::get<1>(GetParam()); }
    void prepare() override {
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0");
        pod_ = add_pod({{"firstPacket", "host"}});
        lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close=" + std::to_string(kBelieved));
        if (masqueraded())
            lab_->node().run(iptables() + " -w -t nat -A POSTROUTING -o up0 -j MASQUERADE");
        wire_.emplace(lab_->outside(), "eth0");
        gateway_ = Wire(lab_->node().ns(), "up0").mac();
        listener_ = open_socket(lab_->outside(), Transport::tcp, ipv4(), {outside_addr(), kPort});
        ASSERT_EQ(listen(listener_.get(), 1), 0);
    }
    // A connection on the fast path.
    void open() {
        client_ = connected(pod_.ns(), Transport::tcp, {outside_addr(), kPort}, {addr(pod_), kOwnPort});
        server_ = accepted(listener_);
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t sent = fast(REASON_SENT_UPLINK), received = fast(REASON_RECEIVED_UPLINK);
            expect_alive();
            return fast(REASON_SENT_UPLINK) > sent && fast(REASON_RECEIVED_UPLINK) > received;
        }));
        ASSERT_EQ(entry().state, "ESTABLISHED");
    }
    [[nodiscard]] std::uint64_t fast(reason why) const { return lab_->count(pod_, why); }
    // The server pushes, and the client responds.
    void expect_alive() {
        ASSERT_EQ(send_text(server_, "push"), 0);
        EXPECT_EQ(receive(client_).text, "push");
        ASSERT_EQ(send_text(client_, "response"), 0);
        EXPECT_EQ(receive(server_).text, "response");
    }
    [[nodiscard]] Tracked entry() {
        for (const Tracked &one : tracked(lab_->node().ns()))
            if (one.source.port == kOwnPort)
                return one;
        return {};
    }
    [[nodiscard]] bool is_ended() {
        const Tracked one = entry();
        return one.state != "ESTABLISHED" || one.seconds <= kBelieved;
    }
    void send(const Ends &ends, std::uint8_t flags, const Numbers &numbers) {
        Packet packet = tcp(ends, flags);
        packet.payload[14] = packet.payload[15] = 0xff; // the largest window
        put_numbers(packet, numbers);
        wire_->send(frame(gateway_, wire_->mac(), packet));
    }
    // The node forwards each to the peer before the next one comes.
    void announce_window(const Numbers &numbers) {
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t before = forwarded_back();
            send({addr(pod_), outside_addr(), kOwnPort, kPort}, tcp_ack, numbers);
            (void)wait_until([&] { return forwarded_back() > before; }, quiet());
        }
    }
    [[nodiscard]] std::uint64_t forwarded_back() {
        return lab_->node().counted("up0", REASON_UPLINK_SENT_HOST).packets;
    }
    [[nodiscard]] Ends from_peer() const {
        return {outside_addr(), masqueraded() ? node_addr() : addr(pod_), kPort, kOwnPort};
    }
    void expect_unharmed(const std::function<void(const Numbers &)> &attack, const Numbers &numbers) {
        ASSERT_NO_FATAL_FAILURE(open());
        attack(numbers);
        // In this time an entry that conntrack believes to be closed is gone.
        EXPECT_FALSE(wait_until([&] { return is_ended(); }, std::chrono::seconds(kBelieved) + 2 * quiet()))
            << entry().state << " for " << entry().seconds << " s";
        expect_alive();
    }
    // By FIN or by RST, after forged acknowledgments or without.
    void expect_ended_by_the_peer(bool resets) {
        for (const bool forges : {false, true}) {
            SCOPED_TRACE(forges ? "after forged acknowledgments" : "without forged acknowledgments");
            ASSERT_NO_FATAL_FAILURE(open());
            if (forges)
                announce_window({0x97531357, 0x13572468});
            const linger abort{1, 0};
            if (resets) {
                ASSERT_EQ(setsockopt(server_.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort), 0);
            }
            server_ = Fd();
            EXPECT_TRUE(wait_until([&] { return is_ended(); }));
            EXPECT_EQ(receive(client_).error, resets ? ECONNRESET : 0);
            client_ = Fd();
            if (entry().source.port == kOwnPort)
                (void)delete_tracked(lab_->node().ns(), entry());
        }
    }

  private:
    Pod pod_;
    std::optional<Wire> wire_;
    Mac gateway_{};
    Fd listener_, server_, client_;
};

TEST_P(AttackWindow, AResetThatFitsItEndsNoConnection) {
    expect_unharmed(
        [&](const Numbers &numbers) {
            announce_window(numbers);
            for (const std::uint32_t beyond : {1U, 1000U, 0U}) // of the number that the pod is said to expect
                send(from_peer(), tcp_rst, {numbers.ack + beyond, 0});
        },
        {0x97531357, 0x13572468});
}

TEST_P(AttackWindow, AFinThatFitsItEndsNoConnection) {
    expect_unharmed(
        [&](const Numbers &numbers) {
            announce_window(numbers);
            for (int i = 0; i < 2; ++i)
                send(from_peer(), tcp_fin | tcp_ack, {numbers.ack, numbers.sequence});
        },
        {0x11111111, 0xeeeeeeee});
}

// Guards: as the peer means it, also if its numbers are far from those of the forged acknowledgments.
TEST_P(AttackWindow, TheFinOfThePeerEndsTheConnection) { expect_ended_by_the_peer(false); }
TEST_P(AttackWindow, TheResetOfThePeerEndsTheConnection) { expect_ended_by_the_peer(true); }

std::string name_of(const testing::TestParamInfo<std::tuple<LabParameter, bool>> &info) {
    return lab_parameter_text(std::get<0>(info.param)) + (std::get<1>(info.param) ? "Masqueraded" : "");
}
INSTANTIATE_TEST_SUITE_P(Tcx, AttackWindow,
                         testing::Combine(testing::Values(LabParameter{"tcx", true}, LabParameter{"tcx", false}),
                                          testing::Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Clsact, AttackWindow,
                         testing::Values(std::tuple{LabParameter{"clsact", true}, true},
                                         std::tuple{LabParameter{"clsact", true}, false},
                                         std::tuple{LabParameter{"clsact", false}, false}),
                         name_of);

} // namespace
} // namespace podlane::test
