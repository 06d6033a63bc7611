// SPDX-License-Identifier: MIT
// Segments with a FIN and numbers that nobody accepts are kept from conntrack. They reach a pod no longer than other
// segments of their connection do: not if the host stack has come to refuse what arrives from the peer. A pod with the
// fast path off shows what the host stack does.
#include "tests/netns/captured.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/segments.hpp"

namespace podlane::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kOwnPort = 40123;
constexpr std::chrono::milliseconds kBetween{20};
// In this time nothing may arrive, or something must. It is longer than a route to the peer holds without a query.
constexpr std::chrono::milliseconds kWindow{1200};
// A query is due after a second.
std::chrono::milliseconds confirmation() { return std::chrono::milliseconds(slow() ? 20000 : 4000); }
constexpr std::uint8_t kData = tcp_ack | tcp_psh;
constexpr std::uint8_t kEnd = tcp_fin | tcp_ack | tcp_psh;

class AttackEndRoute : public LabTest {
  protected:
    struct Victim {
        std::string name{};
        Pod pod{};
        Fd socket{};
        std::shared_ptr<Wire> wire{};
        std::map<std::uint8_t, Clock::time_point> last{}; // by flags: when one arrived
    };
    void prepare() override {
        add_up1();
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        filter(0);
        server_.emplace(lab_->outside(), ipv4(), kPort);
        wire_.emplace(lab_->outside(), "eth0");
        gateway_ = Wire(lab_->node().ns(), "up0").mac();
        Json keys = {{"uplinks", {"up0"}}, {"firstPacket", "host"}};
        victims_.push_back(connect_from("on the fast path", add_pod(keys)));
        keys["fastPath"] = "off";
        victims_.push_back(connect_from("on the slow path", add_pod(keys)));
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t before = delivered();
            EXPECT_EQ(transfer(victims_[0].socket, 100000), 0);
            return delivered() > before;
        }));
    }
    [[nodiscard]] Victim connect_from(const std::string &name, const Pod &pod) const {
        return {name, pod, connected(pod.ns(), Transport::tcp, {outside_addr(), kPort}, {addr(pod), kOwnPort}),
                std::make_shared<Wire>(pod.wire())};
    }
    [[nodiscard]] std::uint64_t delivered() const { return lab_->count(victims_[0].pod, REASON_RECEIVED_UPLINK); }
    // 0: none, 1: strict. The larger one of both holds.
    void filter(int mode) {
        for (const char *of : {"all", "up0", "up1"})
            lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=" + std::to_string(mode));
    }
    [[nodiscard]] std::string route(const std::string &words) const {
        return (ipv4() ? "ip route " : "ip -6 route ") + words;
    }
    [[nodiscard]] std::string forwarding(const std::string &of, int mode) const {
        return std::string("sysctl -qw net.") + (ipv4() ? "ipv4" : "ipv6") + ".conf." + of +
               ".forwarding=" + std::to_string(mode);
    }
    [[nodiscard]] std::string peer() const { return to_string(outside_addr()) + (ipv4() ? "/32" : "/128"); }
    // A segment of either kind to each pod, with data and numbers far from the connection's.
    void send_all() {
        ++sequence_;
        for (const Victim &to : victims_)
            for (const std::uint8_t flags : {kData, kEnd}) {
                Packet packet = tcp({outside_addr(), addr(to.pod), kPort, kOwnPort}, flags, 16);
                put_numbers(packet, {sequence_, 0x44000000});
                wire_->send(frame(gateway_, wire_->mac(), packet));
            }
        std::this_thread::sleep_for(kBetween);
        for (Victim &at : victims_)
            for (const Bytes &one : at.wire->arrived())
                if (is_from(one, outside_addr()) && protocol_of(one) == IPPROTO_TCP)
                    at.last[one.at(transport_at(one) + 13)] = Clock::now();
    }
    void restart() {
        start_ = Clock::now();
        for (Victim &one : victims_)
            one.last = {{kData, start_}, {kEnd, start_}};
    }
    [[nodiscard]] static bool is_silent(Clock::time_point last) { return Clock::now() - last > kWindow; }
    [[nodiscard]] static bool is_silent(const Victim &at) {
        return is_silent(at.last.at(kData)) && is_silent(at.last.at(kEnd));
    }
    // Of ends, those for the pod on the slow path are dropped on the uplink.
    void expect_open() {
        restart();
        EXPECT_TRUE(wait_until([&] {
            send_all();
            return victims_[0].last[kData] > start_ && victims_[1].last[kData] > start_ &&
                   victims_[0].last[kEnd] > start_;
        }));
        EXPECT_EQ(victims_[1].last[kEnd], start_);
    }
    void expect_closed() {
        restart();
        while (Clock::now() < start_ + confirmation() + kWindow &&
               !std::ranges::all_of(victims_, [](const Victim &one) { return is_silent(one); }))
            send_all();
        for (const Victim &one : victims_)
            for (const std::uint8_t flags : {kData, kEnd})
                EXPECT_TRUE(is_silent(one.last.at(flags)))
                    << one.name << ": " << (flags == kEnd ? "ends arrive" : "data arrives");
    }
    // The host stack goes on to forward what arrives from the peer.
    void expect_data() {
        restart();
        while (Clock::now() < start_ + kWindow)
            send_all();
        restart();
        EXPECT_TRUE(wait_until([&] {
            send_all();
            return victims_[0].last[kData] > start_ && victims_[1].last[kData] > start_;
        }));
    }
    // `both`: the change holds for IPv6 as well.
    void expect_change_to_hold(const std::string &change, const std::string &revert, int filter_mode = 0,
                               bool both = false) {
        SCOPED_TRACE(change);
        expect_open();
        filter(filter_mode);
        lab_->node().run(change);
        ipv4() || both ? expect_closed() : expect_data();
        lab_->node().run(revert);
        filter(0);
        expect_open();
    }

    std::vector<Victim> victims_;
    std::optional<EchoServer> server_;
    std::optional<Wire> wire_;
    Mac gateway_{};
    std::uint32_t sequence_ = 0x33000000;
    Clock::time_point start_{};
};

// Without a reverse path filter, and for IPv6, the host stack looks at no route to the source; nor at an interface's
// own setting of IPv6.
TEST_P(AttackEndRoute, EndsReachNoPodThatTheHostStackForwardsNothingTo) {
    expect_change_to_hold(route("add blackhole " + peer()), route("del " + peer()), 1);
    expect_change_to_hold(route("add " + peer() + " via " + (ipv4() ? "192.0.2.9" : "2001:db8:2::9")),
                          route("del " + peer()), 1);
    expect_change_to_hold(forwarding("up0", 0), forwarding("up0", 1));
    expect_change_to_hold(forwarding("all", 0), forwarding("all", 1), 0, true);
}

// Guard: as long as nothing is changed, the pod itself refuses them.
TEST_P(AttackEndRoute, EndsReachAPodAsOtherSegmentsDo) { expect_open(); }

INSTANTIATE_TEST_SUITE_P(All, AttackEndRoute, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
