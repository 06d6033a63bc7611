// SPDX-License-Identifier: MIT
// "egress": "cluster": a pod opens connections to clusterCIDRs only, by whichever interface and Service, and replies.
#include "loader/object.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

class Egress : public LabTest {
  protected:
    static Json cluster(Json keys = Json::object()) {
        keys["clusterCIDRs"] = {Lab::kPods4, Lab::kPods6};
        return keys;
    }
    static Json limited(Json keys = Json::object()) {
        keys["egress"] = "cluster";
        return cluster(std::move(keys));
    }
    void prepare() override {
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        outside_.emplace(lab_->outside(), ipv4(), kPort);
        ASSERT_TRUE(ping(lab_->node().ns(), outside_addr())) << "what is refused later is not waiting for a neighbour";
    }
    Pod serving(const Json &keys) {
        Pod pod = add_pod(keys);
        servers_.push_back(std::make_unique<EchoServer>(pod.ns(), ipv4(), kPort));
        return pod;
    }
    [[nodiscard]] bool is_refused(const Pod &from, const ip_addr &to) const {
        return connect_to(open_socket(from.ns(), Transport::tcp, ipv4()), {to, kPort}, quiet()) == ETIMEDOUT;
    }
    // A Service in front of `to`.
    void translate(const ip_addr &service, const ip_addr &to) {
        const std::string family = ipv4() ? "ip" : "ip6";
        lab_->node().run("nft -f -", "table " + family +
                                         " services { chain c { type nat hook prerouting priority -100; " + family +
                                         " daddr " + to_string(service) + " dnat to " + to_string(to) + "; }\n}\n");
    }
    [[nodiscard]] std::string table() {
        return lab_->node().run("nft list table inet podlane-" + lab_->node().config().at("name").get<std::string>());
    }
    // Datagrams of `from` that have reached `to`, so far: each with another text.
    [[nodiscard]] static std::size_t arrived(const Fd &to) {
        std::size_t count = 0;
        while (recv(to.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
            ++count;
        return count;
    }
    [[nodiscard]] bool queries_conntrack() { return require(programs_query_conntrack(lab_->node().bpffs())); }

    std::optional<EchoServer> outside_;
    std::vector<std::unique_ptr<EchoServer>> servers_;
};

TEST_P(Egress, LeadsToTheClusterOnly) {
    const Pod pod = add_pod(limited()), open = serving(cluster());
    const EchoServer node(lab_->node().ns(), ipv4(), kPort);
    const ip_addr inside = ip(ipv4() ? "192.0.2.10" : "2001:db8:5::10"),
                  beyond = ip(ipv4() ? "192.0.2.11" : "2001:db8:5::11");
    translate(inside, addr(open));
    translate(beyond, outside_addr());
    for (const Transport transport : {Transport::tcp, Transport::udp})
        for (const ip_addr &to : {addr(open), inside, node_addr()})
            EXPECT_EQ(ask(pod.ns(), transport, {to, kPort}), 0) << to_string(to) << to_string(transport);
    EXPECT_EQ(ask(pod.ns(), Transport::udp, {addr(open), kPort}, std::string(4000, 'x')), 0) << "fragments";
    EXPECT_TRUE(ping(pod.ns(), addr(open)));
    EXPECT_EQ(ask(pod.ns(), Transport::tcp, {addr(open), kPort + 1}), ECONNREFUSED);
    const Fd socket = connected(pod.ns(), Transport::tcp, {inside, kPort});
    const std::uint64_t direct = lab_->count(pod, REASON_SENT_DIRECT);
    EXPECT_EQ(transfer(socket, std::size_t{4} << 20U), 0);
    if (queries_conntrack()) {
        EXPECT_GT(lab_->count(pod, REASON_SENT_DIRECT), direct) << "on the fast path";
    }
    EXPECT_EQ(outside_->callers().size(), 0U);
    EXPECT_TRUE(is_refused(pod, outside_addr()));
    EXPECT_TRUE(is_refused(pod, beyond)) << "by a Service";
    EXPECT_NE(run(pod.ns(), words("ping -n -c 1 -W 1 " + to_string(outside_addr()))).rc, 0);
    for (const std::size_t size : {10, 4000}) {
        const Fd datagrams = connected(pod.ns(), Transport::udp, {outside_addr(), kPort});
        EXPECT_EQ(send_text(datagrams, std::string(size, 'x')), 0);
        EXPECT_EQ(receive(datagrams, 10, quiet()).error, ETIMEDOUT) << size;
    }
    EXPECT_EQ(outside_->callers().size(), 0U) << "nothing of the pod has got out";
    EXPECT_EQ(ask(open.ns(), Transport::udp, {outside_addr(), kPort}), 0) << "other pods are not limited";
    EXPECT_THAT(table(), AllOf(HasSubstr(pod.host_ifname), Not(HasSubstr("counter packets 0"))));
}

TEST_P(Egress, RepliesLeaveTheCluster) {
    for (const Json &keys : {Json::object(), Json{{"isolation", "network"}, {"outside", "allow"}}}) {
        SCOPED_TRACE(keys.dump());
        const Pod pod = serving(limited(keys));
        for (const Transport transport : {Transport::tcp, Transport::udp})
            EXPECT_EQ(ask(lab_->outside(), transport, {addr(pod), kPort}), 0) << to_string(transport);
        EXPECT_TRUE(ping(lab_->outside(), addr(pod)));
        EXPECT_EQ(ask(lab_->outside(), Transport::udp, {addr(pod), kPort + 1}), ECONNREFUSED) << "so do ICMP errors";
        const std::uint64_t by_uplink = lab_->count(pod, REASON_SENT_UPLINK);
        const Fd socket = connected(lab_->outside(), Transport::tcp, {addr(pod), kPort});
        EXPECT_EQ(transfer(socket, std::size_t{4} << 20U), 0);
        if (queries_conntrack()) {
            EXPECT_GT(lab_->count(pod, REASON_SENT_UPLINK), by_uplink) << "on the fast path";
        }
        EXPECT_TRUE(is_refused(pod, outside_addr()));
    }
}

// A machine outside sends what isolation drops behind the host's rules. Its connection is in conntrack's table.
TEST_P(Egress, NobodyOutsideOpensAWayForAnIsolatedPod) {
    const Pod pod = add_pod(limited({{"isolation", "network"}}));
    const Fd accomplice = open_socket(lab_->outside(), Transport::udp, ipv4(), {outside_addr(), 4000});
    const Fd inside = open_socket(pod.ns(), Transport::udp, ipv4(), {addr(pod), 5000});
    const std::uint64_t before = lab_->count(pod, REASON_DROP_ISOLATION);
    EXPECT_TRUE(wait_until([&] {
        (void)send_datagram(accomplice, {addr(pod), 5000}, "come");
        return lab_->count(pod, REASON_DROP_ISOLATION) > before + 2;
    }));
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(send_datagram(inside, {outside_addr(), 4000}, "secret"));
    EXPECT_NE(run(pod.ns(), words("ping -n -c 1 -W 1 " + to_string(outside_addr()))).rc, 0);
    EXPECT_EQ(arrived(accomplice), 0U);
}

TEST_P(Egress, FirstPacketsMeetTheRulesToo) {
    Json elsewhere = limited({{"firstPacket", "direct"}});
    elsewhere["clusterCIDRs"] = {"198.18.77.0/24", "2001:db8:77::/64"};
    const Pod pod = add_pod(elsewhere);
    elsewhere.erase("egress");
    const Pod peer = serving(elsewhere), open = add_pod(elsewhere);
    EXPECT_TRUE(is_refused(pod, addr(peer)));
    EXPECT_EQ(ask(open.ns(), Transport::tcp, {addr(peer), kPort}), 0);
}

// Packets of an earlier owner of the address on the fast path.
TEST_P(Egress, AnEarlierOwnersConnectionIsNotTheNewPods) {
    Json keys = cluster({{"capabilities", {{"ips", true}}}, {"firstPacket", "host"}});
    keys["runtimeConfig"] = {{"ips", {"198.18.9.77", "2001:db8:9::77"}}};
    const auto first = lab_->node().container(), second = lab_->node().container();
    const auto config = [&] { return lab_->node().config(with_attach(keys)); };
    ASSERT_THAT(lab_->node().cni("ADD", config(), *first), succeeds());
    const Pod before = observe(lab_->node(), first);
    const Fd outside = open_socket(lab_->outside(), Transport::udp, ipv4(), {outside_addr(), 4000});
    const auto reaches_it = [&](const Fd &from) {
        EXPECT_TRUE(send_datagram(from, {outside_addr(), 4000}, "out"));
        return !receive(outside, 10, quiet()).text.empty();
    };
    std::optional<Fd> inside = open_socket(first->ns(), Transport::udp, ipv4(), {{}, 40000});
    EXPECT_TRUE(wait_until([&] {
        return reaches_it(*inside) && send_datagram(outside, {addr(before), 40000}, "in") &&
               (lab_->count(before, REASON_SENT_UPLINK) > 2 || !queries_conntrack());
    }));
    inside.reset();
    ASSERT_THAT(lab_->node().cni("DEL", config(), *first), succeeds());
    keys["egress"] = "cluster";
    ASSERT_THAT(lab_->node().cni("ADD", config(), *second), succeeds());
    inside = open_socket(second->ns(), Transport::udp, ipv4(), {{}, 40000});
    EXPECT_TRUE(wait_until([&] { return !reaches_it(*inside); })) << "the flow cache queries conntrack once a second";
    EXPECT_FALSE(reaches_it(*inside));
    ASSERT_THAT(lab_->node().cni("DEL", config(), *second), succeeds());
}

// The network of the source address decides, whichever interface the container's routes choose.
TEST_P(Egress, EachInterfaceIsJudgedByItsNetwork) {
    (void)must_run(lab_->outside(),
                   words(std::string("ip route add ") + (ipv4() ? "198.18.8.0/24" : "2001:db8:8::/64") + " via " +
                         to_string(node_addr())));
    for (const bool first_is_limited : {true, false}) {
        SCOPED_TRACE(first_is_limited);
        const auto container = lab_->node().container();
        const auto config = [&](const std::string &name, bool is_limited) {
            Json keys = is_limited ? limited() : cluster();
            keys["name"] = name;
            return lab_->node().config(with_attach(keys));
        };
        const Json first = config("one", first_is_limited);
        Json second = config("two", !first_is_limited);
        second["ipam"]["ranges"] = {{{{"subnet", "198.18.8.0/24"}}}, {{{"subnet", "2001:db8:8::/64"}}}};
        const Variables net1 = {{"CNI_IFNAME", "net1"}};
        const auto own = [&](const Reply &made) {
            for (const Json &one : made.json.at("ips"))
                if (const ip_addr addr = prefix(one.at("address")).addr; is_ipv4(addr) == ipv4())
                    return addr;
            return ip_addr{};
        };
        const Reply one = succeeded(lab_->node().cni("ADD", first, *container)),
                    two = succeeded(lab_->node().cni("ADD", second, *container, net1));
        for (const bool by_first : {true, false}) {
            const bool is_limited = by_first == first_is_limited;
            const ip_addr from = own(by_first ? one : two);
            EXPECT_EQ(connect_to(open_socket(container->ns(), Transport::tcp, ipv4(), {from, 0}),
                                 {outside_addr(), kPort}, is_limited ? quiet() : patience()),
                      is_limited ? ETIMEDOUT : 0)
                << to_string(from);
        }
        ASSERT_THAT(lab_->node().cni("DEL", second, *container, net1), succeeds());
        ASSERT_THAT(lab_->node().cni("DEL", first, *container), succeeds());
    }
    EXPECT_EQ(lab_->node().run("nft list ruleset").find("hook forward"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Egress, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_family_name);

} // namespace
} // namespace podlane::test
