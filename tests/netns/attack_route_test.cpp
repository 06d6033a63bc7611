// SPDX-License-Identifier: MIT
// The fast path does not keep a source that the host stack has come to refuse: a connection that it carries already
// loses its peer when the node gets a route that discards packets to the peer, or a strict reverse path filter and
// another route to it. A pod with the fast path off shows what the host stack does.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
// A query of conntrack is due after a second.
std::chrono::milliseconds confirmation() { return std::chrono::milliseconds(slow() ? 10000 : 2000); }

class AttackRoute : public LabTest {
  protected:
    struct Victim {
        Pod pod{};
        Fd socket{};
    };
    void prepare() override {
        add_up1();
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        // The node sends no ARP reply to a source that it refuses.
        (void)must_run(lab_->outside(), words("ip neigh replace " + to_string(node_addr()) + " dev eth0 lladdr " +
                                              to_string(Wire(lab_->node().ns(), "up0").mac()) + " nud permanent"));
        filter(0);
        peer_ = open_socket(lab_->outside(), Transport::udp, ipv4(), {outside_addr(), kPort});
        Json keys = {{"uplinks", {"up*"}}, {"firstPacket", "host"}};
        fast_ = connect_from(add_pod(keys));
        keys["fastPath"] = "off";
        slow_ = connect_from(add_pod(keys));
        // Until conntrack counts the connections as established, and the fast path takes them.
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t before = delivered();
            return exchange(fast_) && exchange(slow_) && exchange(fast_) && delivered() > before;
        }));
    }
    [[nodiscard]] Victim connect_from(const Pod &pod) const {
        return {pod, test::connected(pod.ns(), Transport::udp, {outside_addr(), kPort}, {addr(pod), kPort})};
    }
    // Whether what the peer sends arrives.
    [[nodiscard]] bool arrives(const Victim &at) {
        const std::string text = "datagram " + std::to_string(++sent_);
        if (!send_datagram(peer_, {addr(at.pod), kPort}, text))
            return false;
        constexpr std::chrono::milliseconds kSoon{200};
        return receive(at.socket, text.size(), kSoon).text == text;
    }
    [[nodiscard]] bool exchange(const Victim &with) { return send_text(with.socket, "x") == 0 && arrives(with); }
    [[nodiscard]] std::uint64_t delivered() const { return lab_->count(fast_.pod, REASON_RECEIVED_UPLINK); }
    // 0: none, 1: strict, 2: loose. The larger one of both holds.
    void filter(int mode) {
        for (const char *of : {"all", "up0", "up1"})
            lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=" + std::to_string(mode));
    }
    void route(const std::string &words) { lab_->node().run((ipv4() ? "ip route " : "ip -6 route ") + words); }
    [[nodiscard]] std::string peer() const { return to_string(outside_addr()) + (ipv4() ? "/32" : "/128"); }
    void expect_as_without_the_fast_path(bool arrives_at_all) {
        EXPECT_TRUE(wait_until([&] { return arrives(fast_) == arrives_at_all; }, confirmation()));
        for (int i = 0; i < 10; ++i) {
            EXPECT_EQ(arrives(slow_), arrives_at_all) << "without the fast path";
            EXPECT_EQ(arrives(fast_), arrives_at_all) << "with it";
        }
    }
    // The fast path still carries what the host stack lets through.
    void expect_fast() {
        const std::uint64_t before = delivered();
        for (int i = 0; i < 10; ++i)
            EXPECT_TRUE(arrives(fast_));
        EXPECT_GE(delivered(), before + 8);
    }

    Victim fast_, slow_;
    Fd peer_;
    int sent_ = 0;
};

TEST_P(AttackRoute, ARouteThatDiscardsEndsAConnectionOnTheFastPath) {
    for (const char *kind : {"blackhole", "unreachable", "prohibit"}) {
        SCOPED_TRACE(kind);
        filter(0);
        expect_fast();
        route(std::string("add ") + kind + " " + peer());
        // Without a reverse path filter, and for IPv6, the host stack looks at no route to the source.
        expect_as_without_the_fast_path(true);
        filter(1);
        expect_as_without_the_fast_path(!ipv4());
        route("del " + peer());
        expect_as_without_the_fast_path(true);
    }
    expect_fast();
}

TEST_P(AttackRoute, AStrictFilterEndsAConnectionOfAPeerThatMovedToAnotherInterface) {
    route("add " + peer() + " via " + (ipv4() ? "192.0.2.9" : "2001:db8:2::9"));
    expect_as_without_the_fast_path(true);
    expect_fast();
    filter(2);
    expect_as_without_the_fast_path(true);
    filter(1);
    expect_as_without_the_fast_path(!ipv4());
    filter(0);
    expect_as_without_the_fast_path(true);
    expect_fast();
}

INSTANTIATE_TEST_SUITE_P(All, AttackRoute, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
