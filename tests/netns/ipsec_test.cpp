// SPDX-License-Identifier: MIT
// IPsec policies of the node hold for packets that conntrack has not seen: first packets that are direct, and those of
// a network with its own uplink. What no state encrypts, or arrives in clear text, the kernel drops.
#include "loader/net/link.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/lan.hpp"
#include "tests/netns/service_test.hpp"

namespace podlane::test {
namespace {

// While a new policy need not have been noticed, for a second.
bool comes_true(const std::function<bool()> &changed) { return wait_until(changed, std::chrono::seconds(3)); }

// For what is lost on purpose.
bool answered_soon(const Fd &socket) {
    return send_text(socket, "hello") == 0 && receive(socket, 5, 4 * quiet()).text == "hello";
}

std::string policy(const std::string &dir, const ip_addr &from, const ip_addr &to) {
    return "add dir " + dir + " src " + to_string(from) + " dst " + to_string(to) + " tmpl proto esp mode transport";
}

// Of addresses that nobody has: the kernel decides whom it concerns.
std::string policy_of_others(bool ipv4) {
    const ip_addr nobody = ip(ipv4 ? "192.0.2.250" : "2001:db8:99::1");
    return policy("fwd", nobody, nobody);
}

void set_policy(const Node &node, const std::string &words) { node.run("ip xfrm policy " + words); }

void flush_policies(const Node &node) {
    set_policy(node, "flush");
    set_policy(node, "setdefault fwd accept");
}

class IpsecDirect : public ServiceTest {
  protected:
    IpsecDirect() : ServiceTest(kPort, kPort) {}
    void prepare() override {
        client_ = add_pod({{"firstPacket", "direct"}});
        server_ = add_pod({{"firstPacket", "direct"}});
    }
    [[nodiscard]] std::uint64_t fast() const { return lab_->count(client_, REASON_SENT_DIRECT); }
    [[nodiscard]] bool is_fast(const Fd &socket) const {
        const std::uint64_t before = fast();
        return answered(socket) && fast() > before;
    }
    [[nodiscard]] std::vector<Tracked> own_entries() {
        std::vector<Tracked> own = tracked(lab_->node().ns());
        std::erase_if(own, [](const Tracked &one) { return to_string(one.source.addr) != "224.0.0.0"; });
        return own;
    }
};

TEST_P(IpsecDirect, PoliciesHoldForFirstPackets) {
    const EchoServer server(server_.ns(), ipv4(), kPort);
    const ip_addr from = addr(client_), to = addr(server_);
    for (const std::string &words : {policy("fwd", from, to), policy("fwd", to, from), policy("out", from, to),
                                     std::string("setdefault fwd block")}) {
        SCOPED_TRACE(words);
        const Fd before = connected({to, kPort}, Transport::udp);
        EXPECT_TRUE(is_fast(before));
        set_policy(lab_->node(), words);
        EXPECT_TRUE(comes_true([&] { return !answered_soon(before); }));
        const std::uint64_t packets = fast();
        const Fd datagrams = open_socket(client_.ns(), Transport::udp, ipv4());
        ASSERT_EQ(connect_to(datagrams, {to, kPort}), 0);
        EXPECT_FALSE(answered_soon(datagrams));
        const Fd stream = open_socket(client_.ns(), Transport::tcp, ipv4());
        EXPECT_NE(connect_to(stream, {to, kPort}, 4 * quiet()), 0);
        EXPECT_EQ(fast(), packets);
        flush_policies(lab_->node());
        EXPECT_TRUE(comes_true([&] { return answered_soon(before); }));
    }
}

TEST_P(IpsecDirect, PoliciesOfOthersLeaveFirstPacketsToTheHostStack) {
    const EchoServer server(server_.ns(), ipv4(), kPort);
    set_policy(lab_->node(), policy_of_others(ipv4()));
    const Fd first = connected({addr(server_), kPort});
    EXPECT_EQ(transfer(first, 1 << 18), 0);
    EXPECT_EQ(fast(), 0U);
    flush_policies(lab_->node());
    const Fd second = connected({addr(server_), kPort});
    EXPECT_EQ(transfer(second, 1 << 18), 0);
    EXPECT_GT(fast(), 10U);
}

// The entry by which the programs find the node's policies is one, whoever deletes it.
TEST_P(IpsecDirect, TheirOwnEntryOfConntrackIsReplaced) {
    const EchoServer server(server_.ns(), ipv4(), kPort);
    for (int i = 0; i < 3; ++i) {
        const Fd socket = connected({addr(server_), kPort}, Transport::udp);
        EXPECT_TRUE(is_fast(socket));
        const std::vector<Tracked> entries = own_entries();
        ASSERT_EQ(entries.size(), 1U);
        EXPECT_TRUE(entries.front().assured) << "a full table evicts it";
        EXPECT_LE(entries.front().seconds, 3600U);
        EXPECT_GE(entries.front().seconds, 3500U);
        ASSERT_EQ(delete_tracked(lab_->node().ns(), entries.front()), 0);
    }
}

// It inserts no entry, and predicts what the next packet gets.
TEST_P(IpsecDirect, ExplainPredictsThemAndInsertsNoEntry) {
    const auto explained = [&] {
        return lab_->node()
            .podlanectl_json("explain --from " + client_.container->id() + " --to " +
                             to_string(Endpoint{addr(server_), kPort}))
            .dump();
    };
    EXPECT_THAT(explained(), testing::HasSubstr("sent-direct"));
    set_policy(lab_->node(), policy_of_others(ipv4()));
    EXPECT_THAT(explained(), testing::HasSubstr("host-unconfirmed"));
    flush_policies(lab_->node());
    set_policy(lab_->node(), "setdefault fwd block");
    EXPECT_THAT(explained(), testing::HasSubstr("host-unconfirmed"));
    flush_policies(lab_->node());
    EXPECT_TRUE(own_entries().empty());
}

// Anybody on the uplink can send them, in clear text. The pod itself sends nothing meanwhile that policies would show.
TEST_P(IpsecDirect, PoliciesHoldForErrorsAboutFirstPackets) {
    const Node &node = lab_->node();
    const std::string range = ipv4() ? "198.18.20.0/24" : "2001:db8:20::/64";
    const Endpoint remote{ip(ipv4() ? "198.18.20.7" : "2001:db8:20::7"), kPort};
    const ip_addr anybody = ip(ipv4() ? "203.0.113.9" : "2001:db8:cafe::9");
    node.run(ipv4() ? "ip route replace default via 203.0.113.99"
                    : "ip -6 route replace default via 2001:db8:cafe::99");
    node.run("ip route add " + range + " via " + to_string(outside_addr())); // not by the default route's next hop
    ASSERT_TRUE(wait_until([&] { return ping(node.ns(), outside_addr()); }));
    const Pod pod = add_pod({{"firstPacket", "direct"}, {"clusterCIDRs", {range, Lab::kPods4, Lab::kPods6}}});
    const Fd socket = open_socket(pod.ns(), Transport::udp, ipv4());
    ASSERT_EQ(connect_to(socket, remote), 0);
    ASSERT_EQ(send_text(socket, "hello"), 0);
    ASSERT_TRUE(wait_until([&] { return lab_->count(pod, REASON_SENT_UPLINK) > 0; })) << "it is not direct";
    Bytes body(4);
    const Bytes quoted = to_bytes(udp({addr(pod), remote.addr, local_of(socket).port, kPort}));
    body.insert(body.end(), quoted.begin(), quoted.end());
    const Packet error = icmp({anybody, addr(pod)}, ipv4() ? 3 : 1, ipv4() ? 3 : 4, body); // port unreachable
    const Wire wire(lab_->outside(), "eth0");
    const Bytes bytes = frame(Wire(node.ns(), "up0").mac(), wire.mac(), error);
    const auto arrives = [&] {
        wire.send(bytes);
        return receive(socket, 1, quiet()).error == ECONNREFUSED;
    };
    const auto none_arrives = [&] { // for longer than a processor's answer about policies is cached
        return !wait_until(arrives, std::chrono::milliseconds(1500));
    };
    EXPECT_TRUE(wait_until(arrives));
    set_policy(node, policy("fwd", anybody, addr(pod)));
    const std::uint64_t before = node.counted("up0", REASON_HOST_IPSEC).packets;
    EXPECT_TRUE(comes_true(none_arrives));
    EXPECT_GT(node.counted("up0", REASON_HOST_IPSEC).packets, before);
    flush_policies(node);
    EXPECT_TRUE(comes_true(arrives)) << "nothing but the policy was in the way";
}

INSTANTIATE_TEST_SUITE_P(Netns, IpsecDirect, lab_parameters(), lab_parameter_name);

// The node's own routes lead by the network's uplink, too.
class IpsecUplink : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0);
        lab_.add(pod_, "net1", 1,
                 {{"uplink", "up1"}, {"gateway", {SourceLab::on_link(1, 1, true), SourceLab::on_link(1, 1, false)}}});
    }
    [[nodiscard]] ip_addr pod() const { return SourceLab::addr(*pod_, "net1", GetParam()); }
    [[nodiscard]] ip_addr client() const { return ip(SourceLab::client_addr(1, GetParam())); }
    [[nodiscard]] std::uint64_t count(reason why) const { return lab_.count(SourceLab::host_veth(*pod_, "net1"), why); }
    [[nodiscard]] bool is_by_uplink(const Fd &socket) const {
        const std::uint64_t before = count(REASON_SENT_WAY);
        return answered_soon(socket) && count(REASON_SENT_WAY) > before;
    }
    [[nodiscard]] Fd socket_to_client() const {
        Fd socket = open_socket(pod_->ns(), Transport::udp, GetParam(), {pod(), 0});
        EXPECT_EQ(connect_to(socket, {client(), kPort}), 0);
        return socket;
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

TEST_P(IpsecUplink, PoliciesHoldInBothDirections) {
    const EchoServer server(lab_.client(1).ns(), GetParam(), kPort);
    const std::string in = policy("fwd", client(), pod());
    for (const std::string &words : {policy("out", pod(), client()), in, std::string("setdefault fwd block")}) {
        SCOPED_TRACE(words);
        const Fd socket = socket_to_client();
        EXPECT_TRUE(comes_true([&] { return is_by_uplink(socket); }));
        set_policy(lab_.node(), words);
        EXPECT_TRUE(comes_true([&] { return !answered_soon(socket); }));
        const std::size_t arrived = server.callers().size();
        ASSERT_EQ(send_text(socket, "in clear text"), 0);
        EXPECT_EQ(wait_until([&] { return server.callers().size() > arrived; }, quiet()), words == in);
        flush_policies(lab_.node());
        EXPECT_TRUE(comes_true([&] { return answered_soon(socket); }));
    }
}

// Whichever of several equal routes a flow takes; and if a rule for what comes from the pod leads there.
TEST_P(IpsecUplink, PoliciesHoldWhateverTheRoutesAre) {
    const EchoServer server(lab_.client(1).ns(), GetParam(), kPort);
    const std::string ip = GetParam() ? "ip " : "ip -6 ";
    const auto by = [](int provider) {
        return " via " + SourceLab::on_link(provider, 1, GetParam()) + " dev up" + std::to_string(provider);
    };
    net::Netlink host = require(net::Netlink::open_in(lab_.node().ns()));
    const auto veth = require(net::find_link(host, SourceLab::host_veth(*pod_, "net1")));
    const EchoServer inside(pod_->ns(), GetParam(), kPort);
    std::vector<Fd> outward;
    for (int i = 0; i < 16; ++i)
        outward.push_back(socket_to_client());
    const Fd inward = open_socket(lab_.client(1).ns(), Transport::udp, GetParam());
    ASSERT_EQ(connect_to(inward, {pod(), kPort}), 0);
    const auto nothing_arrives = [](const EchoServer &at, const std::function<void()> &sending) {
        const std::size_t before = at.callers().size();
        sending();
        return !wait_until([&] { return at.callers().size() > before; }, quiet());
    };
    for (const std::string &routes : {ip + "route replace default table 101 nexthop" + by(0) + " nexthop" + by(1),
                                      ip + "rule add pref 1000 iif " + veth.value().name + " lookup 177"}) {
        SCOPED_TRACE(routes);
        lab_.node().run(ip + "route replace default" + by(1) + " table 177");
        lab_.node().run(routes);
        for (const std::string &words : {policy("out", pod(), client()), policy("fwd", client(), pod())})
            set_policy(lab_.node(), words);
        EXPECT_TRUE(comes_true([&] {
            return nothing_arrives(server, [&] {
                for (const Fd &socket : outward)
                    (void)send_text(socket, "in clear text");
            });
        }));
        EXPECT_TRUE(
            comes_true([&] { return nothing_arrives(inside, [&] { (void)send_text(inward, "in clear text"); }); }));
        flush_policies(lab_.node());
        lab_.node().run(ip + "route replace default" + by(0) +
                        " table 101"); // the rule leads elsewhere for the next round
    }
}

TEST_P(IpsecUplink, PoliciesOfOthersLeavePacketsToTheHostStack) {
    const EchoServer server(pod_->ns(), GetParam(), kPort);
    set_policy(lab_.node(), policy_of_others(GetParam()));
    EXPECT_TRUE(comes_true([&] {
        const std::uint64_t before = count(REASON_HOST_IPSEC);
        EXPECT_EQ(ask(lab_.client(1).ns(), Transport::tcp, {pod(), kPort}), 0);
        return count(REASON_HOST_IPSEC) > before;
    }));
    const std::uint64_t before = count(REASON_SENT_WAY);
    EXPECT_EQ(ask(lab_.client(1).ns(), Transport::tcp, {pod(), kPort}), 0);
    EXPECT_EQ(run(lab_.client(1).ns(), words("ping -c 1 -W 2 -s 3000 " + to_string(pod()))).rc, 0);
    EXPECT_EQ(count(REASON_SENT_WAY), before);
}

INSTANTIATE_TEST_SUITE_P(Families, IpsecUplink, testing::Bool(), family_name);

// The host stack does not carry what its own routes would send elsewhere: a LAN on which the node has no address goes
// on.
TEST_P(Lan, PoliciesOfOthersLeaveItAlone) {
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    set_policy(node(), policy_of_others(GetParam()));
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    for (const Container *client : {host_.get(), far_.get()}) {
        const std::uint64_t before = lab_.count(veth, REASON_SENT_WAY);
        EXPECT_EQ(ask(client->ns(), Transport::tcp, {addr(*pod), kPort}), 0) << client->id();
        EXPECT_GT(lab_.count(veth, REASON_SENT_WAY), before);
    }
    EXPECT_EQ(lab_.count(veth, REASON_HOST_IPSEC), 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, Lan, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
