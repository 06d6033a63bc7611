// SPDX-License-Identifier: MIT
// A connection that isolation allowed ends when it no longer does, on each path, and passes to no other pod.
#include "loader/object.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

class IsolationChange : public CtlTest, public testing::WithParamInterface<bool> {
  protected:
    [[nodiscard]] bool ipv4() const { return GetParam(); }
    [[nodiscard]] ip_addr addr(const Pod &pod) const { return pod.addr(ipv4()); }
    // Conntrack's word is not what ends a cached decision.
    static Json isolated(const std::string &group, const Json &more = Json::object()) {
        Json keys = {{"groups", {"name:" + group}},
                     {"isolation", "group"},
                     {"confirmIntervalMs", 60000},
                     {"uplinks", {"up0"}},
                     {"groupCIDRs", {{"outsiders", {"203.0.113.0/24", "2001:db8:cafe::/64"}}}}};
        keys.update(more);
        return keys;
    }
    static Json at(const std::string &group, const Pod &earlier) {
        const std::vector<std::string> both = {earlier.text4(), earlier.text6()};
        return isolated(group, {{"runtimeConfig", {{"ips", both}}}, {"capabilities", {{"ips", true}}}});
    }
    Pod make_in_second(const Json &keys, const Variables &more) {
        Json config = node_.config(keys);
        config["name"] = "second";
        config["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
        auto container = node_.container();
        const Reply reply = succeeded(node_.cni("ADD", config, *container, more));
        return look_at(std::move(container), reply.json);
    }
    void lead_outside_to_pods() const {
        (void)must_run(outside_->ns(), words(ipv4() ? "ip route add 198.18.9.0/24 via 203.0.113.2"
                                                    : "ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2"));
    }
    [[nodiscard]] std::uint64_t counted(const Pod &pod, reason reason) const {
        return node_.counted(pod.ifindex, reason).packets;
    }
    [[nodiscard]] std::uint64_t received_fast(const Pod &pod) const {
        return counted(pod, REASON_RECEIVED_DIRECT) + counted(pod, REASON_RECEIVED_UPLINK);
    }
    // Of the sender's socket: nothing of it arrives from now on, and each packet is counted.
    void expect_ended(const Fd &socket, const Pod &receiver) const {
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t before = counted(receiver, REASON_DROP_ISOLATION);
            ASSERT_EQ(send_text(socket, "no longer"), 0);
            EXPECT_TRUE(wait_until([&] { return counted(receiver, REASON_DROP_ISOLATION) > before; }));
        }
        EXPECT_EQ(receive(socket, 100, quiet()).error, ETIMEDOUT);
    }
};
INSTANTIATE_TEST_SUITE_P(All, IsolationChange, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "V4" : "V6"); });

TEST_P(IsolationChange, EndsConnectionsOnEachPathWithTheNextPacket) {
    lead_outside_to_pods();
    for (const std::string path : {"on", "off"}) {
        const Json more = {{"fastPath", path}};
        const Pod a = make(isolated("tenant-a", more), named("shop", "a-" + path));
        const Pod same = make(isolated("tenant-b", more), named("shop", "same-" + path));
        const Pod other = make_in_second(isolated("tenant-b", more), named("shop", "other-" + path));
        const EchoServer server(a.ns(), ipv4(), kPort);
        const std::string of_a = "outsiders --pod a-" + path;
        const bool is_fast = path == "on" && require(programs_query_conntrack(node_.bpffs()));
        for (const auto &[from, who, can_be_fast] :
             {std::tuple{&same.ns(), "tenant-a --pod same-" + path, true},
              std::tuple{&other.ns(), "tenant-a --pod other-" + path, false}, // of another network
              std::tuple{&outside_->ns(), of_a, true}}) {
            SCOPED_TRACE(path + ": " + who);
            ASSERT_EQ(ctl("group add " + who).rc, 0);
            const std::uint64_t before = received_fast(a);
            const Fd stream = connected(*from, Transport::tcp, {addr(a), kPort});
            const Fd datagrams = connected(*from, Transport::udp, {addr(a), kPort});
            ASSERT_EQ(transfer(stream, std::size_t{1} << 20U), 0);
            for (int i = 0; i < 3; ++i) {
                ASSERT_EQ(send_text(datagrams, "x"), 0);
                ASSERT_EQ(receive(datagrams).text, "x");
            }
            EXPECT_EQ(received_fast(a) > before, is_fast && can_be_fast);
            ASSERT_EQ(ctl("group remove " + who).rc, 0);
            expect_ended(stream, a);
            expect_ended(datagrams, a);
        }
    }
}

// The sender's flow is cached with the decision when another pod gets the sender's address, or the receiver's.
TEST_P(IsolationChange, ACachedDecisionIsNotThatOfTheAddressesNextOwner) {
    const Pod a = make(isolated("tenant-a")), b = make(isolated("tenant-a"));
    if (!require(programs_query_conntrack(node_.bpffs())))
        GTEST_SKIP() << "no flow is cached";
    const auto talk = [&](const Pod &from, const Pod &to) {
        const Fd socket = connected(from.ns(), Transport::udp, {addr(to), kPort}, {{}, 40000});
        const std::uint64_t before = received_fast(to);
        EXPECT_TRUE(wait_until(
            [&] { return send_text(socket, "x") == 0 && receive(socket).text == "x" && received_fast(to) > before; }));
    };
    {
        const EchoServer server(a.ns(), ipv4(), kPort);
        talk(b, a);
    }
    const Fd at_a = open_socket(a.ns(), Transport::udp, ipv4(), {{}, kPort});
    ASSERT_THAT(del(*b.container), succeeds());
    const Pod foreign = make(at("foreign", b));
    ASSERT_EQ(addr(foreign), addr(b));
    expect_ended(connected(foreign.ns(), Transport::udp, {addr(a), kPort}, {{}, 40000}), a);
    EXPECT_EQ(receive(at_a, 100, quiet()).error, ETIMEDOUT);

    const Pod c = make(isolated("tenant-a"));
    {
        const EchoServer server(a.ns(), ipv4(), kPort);
        talk(c, a);
    }
    const Fd open = connected(c.ns(), Transport::udp, {addr(a), kPort}, {{}, 40000});
    ASSERT_THAT(del(*a.container), succeeds());
    const Pod next = make(at("foreign", a));
    const Fd at_next = open_socket(next.ns(), Transport::udp, ipv4(), {{}, kPort});
    ASSERT_EQ(addr(next), addr(a));
    expect_ended(open, next);
    EXPECT_EQ(receive(at_next, 100, quiet()).error, ETIMEDOUT);
}

} // namespace
} // namespace podlane::test
