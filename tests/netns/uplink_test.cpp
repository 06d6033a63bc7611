// SPDX-License-Identifier: MIT
// The life of uplinks: programs come with the first pod, survive what happens to the interface, and go with the last.
// Tunnels whose packets have no Ethernet header: pods reach other nodes through them by the host stack, or ADD refuses.
#include "loader/attach.hpp"
#include "tests/harness/cluster.hpp"
#include "tests/harness/outcome.hpp"

#include <net/if.h>
#include <linux/if_tun.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// Parameter: how programs are attached.
class Uplink : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        cluster_.route_by_hosts();
    }

    [[nodiscard]] const Node &node() const { return cluster_.node(1); }
    Pod add_pod(int number, const Json &more = Json::object()) {
        Json keys = {{"attach", GetParam()}};
        keys.merge_patch(more);
        return cluster_.add_pod(number, keys);
    }
    Output podlanectl(const std::string &command) const { return node().podlanectl("--json " + command); }
    // Names, as podlanectl has them, of those whose state is this.
    [[nodiscard]] std::vector<std::string> uplinks(const std::string &state = "ok") const {
        std::vector<std::string> names;
        for (const Json &one : Json::parse(podlanectl("uplink list").out))
            if (one.at("state") == state)
                names.push_back(one.at("interface").is_string() ? one.at("interface") : Json("none"));
        return names;
    }
    // Programs of Podlane on an interface.
    [[nodiscard]] std::vector<std::string> programs(const std::string &link) const {
        const auto inside = require(net::enter(node().ns()));
        std::vector<std::string> names;
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : require(attached(if_nametoindex(link.c_str()), hook)))
                names.push_back(one.name);
        return names;
    }
    // A new interface of the same name and addresses, the MAC among them: the neighbours know it.
    void recreate(const std::string &link) const {
        const std::string mac = Json::parse(node().run("ip -j link show dev " + link)).at(0).at("address");
        node().run("ip link del " + link);
        node().run("ip link add " + link + " address " + mac + " type veth peer name p1-again netns " +
                   cluster_.wiring().path());
        node().run("ip addr add " + Cluster::node_addr(1, true) + "/24 dev " + link);
        node().run("ip addr add " + Cluster::node_addr(1, false) + "/64 dev " + link + " nodad");
        node().run("ip link set " + link + " up");
        (void)cluster_.wiring().run("ip link set p1-again master br0 up");
        node().run("ip route add default via " + Cluster::outside_addr(true));
        node().run("ip -6 route add default via " + Cluster::outside_addr(false));
        for (const int other : {2, 3})
            for (const bool ipv4 : {true, false})
                node().run("ip route add " + Cluster::pods(other, ipv4) + " via " + Cluster::node_addr(other, ipv4));
        for (const bool ipv4 : {true, false}) // the switch forwards to its new port
            EXPECT_TRUE(wait_until([&] { return ping(node().ns(), Cluster::node_addr(2, ipv4)); }));
    }
    // That packets of the pod reach another node on the fast path.
    void expect_fast(const Pod &from, const Pod &to) const {
        for (const bool ipv4 : {true, false}) {
            const EchoServer server(to.ns(), ipv4, kPort);
            const std::uint64_t before = cluster_.count(from, REASON_SENT_UPLINK);
            const std::uint64_t received = cluster_.count(from, REASON_RECEIVED_UPLINK);
            EXPECT_EQ(ask(from.ns(), Transport::tcp, {to.addr(ipv4), kPort}), 0);
            EXPECT_GE(cluster_.count(from, REASON_SENT_UPLINK) - before, 4U);
            EXPECT_GE(cluster_.count(from, REASON_RECEIVED_UPLINK) - received, 3U);
        }
    }

    Cluster cluster_{2};
};

using Names = std::vector<std::string>;

// The programs judge what arrives there; the packets take the slow path.
TEST_P(Uplink, OfALocalNetworkIsNoFastPath) {
    (void)add_pod(1, {{"fastPath", "off"}});
    EXPECT_TRUE(uplinks().empty());
    const Json keys = {{"fastPath", "local"}};
    const Pod a = add_pod(1, keys), b = add_pod(2, keys);
    EXPECT_EQ(uplinks(), std::vector<std::string>{"up0"});
    EXPECT_EQ(podlanectl("uplink sync").rc, 0);
    for (const bool ipv4 : {true, false}) {
        const EchoServer server(b.ns(), ipv4, kPort);
        const Fd socket = connected(a.ns(), Transport::tcp, {b.addr(ipv4), kPort});
        EXPECT_EQ(transfer(socket, 1 << 20), 0);
    }
    EXPECT_EQ(cluster_.count(a, REASON_SENT_UPLINK), 0U);
    EXPECT_EQ(cluster_.count(a, REASON_RECEIVED_UPLINK), 0U);
    EXPECT_GT(cluster_.count(a, REASON_RECEIVED_HOST), 20U);
    EXPECT_EQ(podlanectl("doctor").rc, 0) << podlanectl("doctor").out;
}

TEST_P(Uplink, DefaultRoutesInterfaceIsTaken) {
    const Pod a = add_pod(1);
    EXPECT_EQ(uplinks(), Names{"up0"});
    EXPECT_EQ(programs("up0").size(), 2U);
    EXPECT_TRUE(programs("up1").empty());
    expect_fast(a, add_pod(2));
}

TEST_P(Uplink, ProgramsComeWithTheFirstPodAndGoWithTheLast) {
    const Pod first = add_pod(1, {{"uplinks", {"up*"}}});
    const Pod second = add_pod(1, {{"uplinks", {"up*"}}});
    EXPECT_EQ(uplinks(), (Names{"up0", "up1"}));
    cluster_.del_pod(first);
    EXPECT_EQ(programs("up0").size(), 2U);
    EXPECT_EQ(programs("up1").size(), 2U);
    cluster_.del_pod(second);
    EXPECT_TRUE(programs("up0").empty());
    EXPECT_TRUE(programs("up1").empty());
    EXPECT_EQ(uplinks(), Names{});
}

TEST_P(Uplink, OtherProgramsGoOnWorking) {
    node().run("ip link add copies type veth peer name copies1");
    node().run("ip link set copies up");
    node().run("tc qdisc add dev up0 clsact");
    for (const std::string way : {"ingress prio 1", "egress prio 49"})
        node().run("tc filter add dev up0 " + way +
                   " protocol all u32 match u32 0 0 action mirred egress mirror dev copies continue");
    const Pod a = add_pod(1);
    expect_fast(a, add_pod(2));
    const auto passed = [&](const std::string &way) {
        for (const Json &one : Json::parse(node().run("tc -s -j filter show dev up0 " + way)))
            if (one.contains("options") && one.at("options").contains("actions"))
                return one.at("options").at("actions").at(0).at("stats").at("packets").get<std::uint64_t>();
        return std::uint64_t{0};
    };
    EXPECT_GE(passed("ingress"), 6U);
    EXPECT_GE(passed("egress"), 8U);
    cluster_.del_pod(a);
    EXPECT_TRUE(programs("up0").empty());
    const std::uint64_t before = passed("ingress");
    EXPECT_TRUE(ping(node().ns(), Cluster::node_addr(2, true)));
    EXPECT_GT(passed("ingress"), before);
}

TEST_P(Uplink, AnIngressQdiscOfOthersStays) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    node().run("tc qdisc add dev up0 ingress");
    const Pod a = add_pod(1);
    expect_fast(a, add_pod(2));
    EXPECT_EQ(programs("up0").size(), 2U);
    EXPECT_NE(node().run("tc qdisc show dev up0").find("qdisc ingress ffff:"), std::string::npos);
    EXPECT_EQ(node().run("tc filter show dev up0 ingress").find(PODLANE_PROGRAM_PREFIX), std::string::npos);
}

TEST_P(Uplink, RecreatedOneIsPickedUpByTheNextAddAndBySync) {
    const Pod a = add_pod(1);
    const Pod far = add_pod(2);
    recreate("up0");
    EXPECT_EQ(uplinks("gone").size(), 1U);
    (void)add_pod(1);
    EXPECT_EQ(uplinks(), Names{"up0"});
    EXPECT_EQ(uplinks("gone"), Names{});
    expect_fast(a, far);
    recreate("up0");
    const Output synced = podlanectl("uplink sync");
    EXPECT_EQ(synced.rc, 0) << synced.err;
    EXPECT_EQ(uplinks(), Names{"up0"});
    expect_fast(a, far);
}

TEST_P(Uplink, LostProgramsAreRestoredBySync) {
    const Pod a = add_pod(1);
    const Pod far = add_pod(2);
    if (GetParam() == "clsact") {
        node().run("tc qdisc del dev up0 clsact");
        EXPECT_EQ(uplinks("no-programs"), Names{"up0"});
        EXPECT_EQ(podlanectl("uplink sync").rc, 0);
    }
    expect_fast(a, far);
}

TEST_P(Uplink, AppearingOneIsPickedUp) {
    const Pod a = add_pod(1, {{"uplinks", {"up0", "late0"}}});
    EXPECT_EQ(uplinks(), Names{"up0"});
    node().run("ip link add late0 type veth peer name late1");
    node().run("ip link set late0 up");
    EXPECT_EQ(podlanectl("uplink sync").rc, 0);
    EXPECT_EQ(uplinks(), (Names{"up0", "late0"}));
}

TEST_P(Uplink, DetachLeavesTrafficToTheHost) {
    const Pod a = add_pod(1);
    const Pod far = add_pod(2);
    const EchoServer server(far.ns(), true, kPort);
    const Fd socket = open_socket(a.ns(), Transport::tcp, true);
    ASSERT_EQ(connect_to(socket, {far.v4, kPort}), 0);
    ASSERT_EQ(transfer(socket, 1000), 0);
    EXPECT_EQ(podlanectl("uplink detach up0").rc, 0);
    EXPECT_TRUE(programs("up0").empty());
    EXPECT_THAT(a.chain->check(*a.container), fails_with(105, {"up0 should be an uplink of network"}));
    EXPECT_EQ(transfer(socket, 1000), 0) << "a flow from before";
    const std::uint64_t before = cluster_.count(a, REASON_SENT_UPLINK);
    EXPECT_EQ(ask(a.ns(), Transport::tcp, {far.v4, kPort}), 0);
    EXPECT_EQ(cluster_.count(a, REASON_SENT_UPLINK), before);
}

// The next ADD makes all of them uplinks, and CHECK judges by them.
TEST_P(Uplink, AllNextHopsOfTheDefaultRouteAreUplinks) {
    const Pod a = add_pod(1);
    node().run("ip link add late0 type veth peer name late1");
    node().run("ip addr add 192.0.2.2/24 dev late0");
    node().run("ip link set late0 up");
    node().run("ip link set late1 up");
    node().run("ip route replace default nexthop via 192.0.2.1 dev late0 nexthop dev up0");
    EXPECT_THAT(a.chain->check(*a.container), fails_with(105, {"late0 should be an uplink of network"}));
    (void)add_pod(1);
    EXPECT_THAT(a.chain->check(*a.container), succeeds());
    EXPECT_FALSE(programs("late0").empty());
}

TEST_P(Uplink, DeviceWithoutEthernetHeaderIsRefused) {
    node().run("ip tuntap add dev tun7 mode tun");
    node().run("ip link set tun7 up");
    const auto container = std::make_shared<Container>("refused", node().dir() + "/netns-refused");
    const Reply reply =
        node().cni("ADD", cluster_.config(1, {{"attach", GetParam()}, {"uplinks", {"up0", "tun7"}}}), *container);
    EXPECT_NE(reply.rc, 0);
    EXPECT_EQ(reply.code(), 7) << reply;
    EXPECT_THAT(reply.message(), has_all({"tun7", "Ethernet"})) << reply;
    EXPECT_TRUE(programs("up0").empty());
    EXPECT_TRUE(node().leased().empty());
    node().run("ip link del tun7");
}

// Its programs there only judge the ends of connections.
TEST_P(Uplink, OfALocalNetworkMayBeNamedWithoutOne) {
    node().run("ip tuntap add dev tun7 mode tun");
    const Container container("local", node().dir() + "/netns-local");
    const Json config = cluster_.config(1, {{"attach", GetParam()}, {"uplinks", {"tun7"}}, {"fastPath", "local"}});
    const Reply reply = node().cni("ADD", config, container);
    EXPECT_EQ(reply.rc, 0) << reply;
    EXPECT_THAT(node().podlanectl("uplink sync").rc, 0);
    EXPECT_EQ(node().cni("DEL", config, container).rc, 0);
    node().run("ip link del tun7");
}

INSTANTIATE_TEST_SUITE_P(Attach, Uplink, both_ways_to_attach(), way_to_attach);

constexpr const char *kTunnel = "tun7";

Fd open_tunnel(const net::Namespace &where) {
    const auto inside = require(net::enter(where));
    Fd tunnel(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
    ifreq request{};
    std::string(kTunnel).copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (!tunnel || ioctl(tunnel.get(), TUNSETIFF, &request) != 0)
        throw std::runtime_error("no tun device can be made");
    return tunnel;
}

// A device on each of two nodes, and what carries packets between them, as a VPN's daemon does.
class Tunnel {
  public:
    Tunnel(const net::Namespace &a, const net::Namespace &b)
        : ends_{open_tunnel(a), open_tunnel(b)}, stop_(eventfd(0, EFD_CLOEXEC)), thread_([this] { carry(); }) {}
    ~Tunnel() {
        const std::uint64_t one = 1;
        (void)!write(stop_.get(), &one, sizeof(one));
        thread_.join();
    }
    Tunnel(const Tunnel &) = delete;
    Tunnel &operator=(const Tunnel &) = delete;

  private:
    void carry() {
        std::array<pollfd, 3> waiting{
            {{ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
        std::array<char, 65536> packet{};
        while (poll(waiting.data(), waiting.size(), -1) > 0 && waiting[2].revents == 0)
            for (const std::size_t from : {0U, 1U})
                if (waiting.at(from).revents != 0)
                    if (const ssize_t size = read(ends_.at(from).get(), packet.data(), packet.size()); size > 0)
                        (void)!write(ends_.at(1 - from).get(), packet.data(), static_cast<std::size_t>(size));
    }

    std::array<Fd, 2> ends_;
    Fd stop_;
    std::thread thread_;
};

class Headerless : public testing::Test {
  protected:
    void SetUp() override {
        for (const int node : {1, 2})
            cluster_.node(node).run(std::string("ip link set ") + kTunnel + " up mtu 1400");
    }
    void route(int node, const std::string &to) const {
        cluster_.node(node).run("ip route replace " + to + " dev " + kTunnel);
    }
    void expect_reached(const Pod &from, const Pod &to) const {
        for (const bool ipv4 : {true, false}) {
            const EchoServer server(to.ns(), ipv4, kPort);
            for (const Transport transport : {Transport::tcp, Transport::udp})
                EXPECT_EQ(ask(from.ns(), transport, {to.addr(ipv4), kPort}), 0) << to_string(transport) << ipv4;
            EXPECT_TRUE(ping(from.ns(), to_string(to.addr(ipv4)), 2));
        }
        EXPECT_EQ(cluster_.count(from, REASON_SENT_UPLINK), 0U);
        EXPECT_EQ(cluster_.count(to, REASON_RECEIVED_UPLINK), 0U);
    }
    [[nodiscard]] Output podlanectl(const std::string &command) const {
        return cluster_.node(1).podlanectl("--json " + command);
    }
    // Names of the uplinks of node 1, and what podlanectl says beside.
    [[nodiscard]] std::pair<std::vector<std::string>, std::string> synced() const {
        const Output said = podlanectl("uplink sync");
        std::vector<std::string> names;
        for (const Json &one : Json::parse(said.out))
            names.push_back(one.at("interface"));
        return {names, said.err};
    }

    Cluster cluster_;
    Tunnel tunnel_{cluster_.node(1).ns(), cluster_.node(2).ns()};
};

TEST_F(Headerless, RoutesThroughItTakeTheSlowPath) {
    const Json keys = {{"uplinks", {"up*", "tun*"}}};
    const Pod a = cluster_.add_pod(1, keys);
    const Pod b = cluster_.add_pod(2, keys);
    for (const bool ipv4 : {true, false}) {
        route(1, Cluster::pods(2, ipv4));
        route(2, Cluster::pods(1, ipv4));
    }
    expect_reached(a, b);
    EXPECT_GE(cluster_.count(a, REASON_HOST_NO_UPLINK), 4U);
    const auto [names, said] = synced();
    EXPECT_EQ(names, std::vector<std::string>{"up0"});
    EXPECT_NE(said.find("tun7 has no Ethernet header"), std::string::npos) << said;
}

// The default uplinks are the interfaces of the default routes: here there is none that could be one.
TEST_F(Headerless, DefaultRouteThroughItLeavesNoUplink) {
    for (const int node : {1, 2})
        for (const char *family : {"-4", "-6"}) {
            cluster_.node(node).run(std::string("ip ") + family + " route del default");
            cluster_.node(node).run(std::string("ip ") + family + " route add default dev " + kTunnel);
        }
    const Pod a = cluster_.add_pod(1);
    const Pod b = cluster_.add_pod(2);
    expect_reached(a, b);
    const auto [names, said] = synced();
    EXPECT_TRUE(names.empty());
    EXPECT_NE(said.find("tun7 has no Ethernet header"), std::string::npos) << said;
}

// It comes after the first pod under a name that is asked for.
TEST_F(Headerless, LateOneIsRefused) {
    cluster_.node(1).run("ip link set tun7 down");
    cluster_.node(1).run("ip link set tun7 name other");
    const Json keys = {{"uplinks", {"up0", "tun7"}}};
    const Pod a = cluster_.add_pod(1, keys);
    cluster_.node(1).run("ip link set other name tun7");
    const Output said = podlanectl("uplink sync");
    EXPECT_NE(said.rc, 0);
    EXPECT_NE((said.out + said.err).find("tun7 has no Ethernet header"), std::string::npos) << said.out << said.err;
    const Container late("late", cluster_.node(1).dir() + "/netns-late");
    const Reply reply = cluster_.node(1).cni("ADD", cluster_.config(1, keys), late);
    EXPECT_EQ(reply.code(), 7) << reply;
    EXPECT_NE(reply.message().find("tun7 has no Ethernet header"), std::string::npos) << reply;
}

} // namespace
} // namespace podlane::test
