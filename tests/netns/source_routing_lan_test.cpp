// SPDX-License-Identifier: MIT
// A network whose pods have addresses of the LAN behind an uplink: answered for by the programs, on that uplink only.
#include "maps/abi/config.h"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

TEST_P(Lan, HostsOnTheLinkAndBehindTheRouterReachThePod) {
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    const Wire elsewhere(lab_.provider(0).ns(), "eth0");
    for (const Container *client : {host_.get(), far_.get()}) {
        for (const Transport transport : {Transport::tcp, Transport::udp})
            EXPECT_EQ(ask(client->ns(), transport, {addr(*pod), kPort}), 0) << client->id() << to_string(transport);
        EXPECT_TRUE(ping(client->ns(), to_string(addr(*pod)), 2)) << client->id();
        // Larger than the link's MTU, there and back.
        EXPECT_EQ(run(client->ns(), words("ping -c 1 -W 2 -s 3000 " + to_string(addr(*pod)))).rc, 0) << client->id();
    }
    EXPECT_EQ(frames_from(elsewhere, addr(*pod)), 0U);
    EXPECT_GT(lab_.count(SourceLab::host_veth(*pod, "net1"), REASON_SENT_WAY), 10U);
}

TEST_P(Lan, ThePodReachesTheLan) {
    const auto pod = add_pod();
    const EchoServer near(host_->ns(), GetParam(), kPort);
    EXPECT_EQ(ask(pod->ns(), Transport::tcp, {host_addr(), kPort}), 0);
    const EchoServer far(far_->ns(), GetParam(), kPort);
    EXPECT_EQ(ask(pod->ns(), Transport::tcp, {far_addr(), kPort}, "hello", {addr(*pod), 0}), 0);
    EXPECT_EQ(far.callers(), std::vector<ip_addr>{addr(*pod)});
    EXPECT_EQ(near.callers(), std::vector<ip_addr>{addr(*pod)});
}

// The node and its pods are reached on the node.
TEST_P(Lan, TheNodeReachesThePod) {
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    EXPECT_EQ(ask(node().ns(), Transport::tcp, {addr(*pod), kPort}), 0);
    EXPECT_TRUE(ping(node().ns(), to_string(addr(*pod)), 2));
    const auto other = node().container();
    lab_.add(other, "eth0", 0);
    EXPECT_EQ(ask(other->ns(), Transport::tcp, {addr(*pod), kPort}), 0);
    const auto second = add_pod();
    EXPECT_EQ(ask(second->ns(), Transport::tcp, {addr(*pod), kPort}), 0);
    // In fragments too, both ways.
    for (const net::Namespace *ns : {&node().ns(), &other->ns(), &second->ns()})
        EXPECT_EQ(run(*ns, words("ping -c 2 -W 2 -s 3000 " + to_string(addr(*pod)))).rc, 0);
}

TEST_P(Lan, AddressesAreAnnounced) {
    const Wire heard(host_->ns(), "eth0");
    const auto pod = add_pod();
    EXPECT_TRUE(is_announced(heard));
    const Mac uplink = Wire(node().ns(), "lan0").mac();
    EXPECT_TRUE(ping(host_->ns(), to_string(addr(*pod))));
    const std::string neighbour = host_->run("ip neigh show " + to_string(addr(*pod)));
    EXPECT_NE(neighbour.find(podlane::to_string(uplink)), std::string::npos) << neighbour;
}

TEST_P(Lan, OnNoOtherUplinkTheyAreAnsweredFor) {
    const auto pod = add_pod();
    (void)lab_.provider(0).run("ip addr add 192.168.133.77/24 dev eth0");
    (void)lab_.provider(0).run("ip addr add 2001:db8:133::77/64 dev eth0 nodad");
    EXPECT_NE(run(lab_.provider(0).ns(), words("ping -c 1 -W 1 " + to_string(addr(*pod)))).rc, 0);
}

TEST_P(Lan, AnAddressInUseIsReported) {
    (void)host_->run("ip addr add 192.168.133.200/24 dev eth0");
    (void)host_->run("ip addr add 2001:db8:133::200/64 dev eth0 nodad");
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    Json only = lan().plugins.at(0);
    only["ipam"]["ranges"].erase(GetParam() ? 1 : 0);
    const Reply reply = lab_.try_add(pod, {"net1", "lan", {only}});
    EXPECT_NE(reply.rc, 0);
    EXPECT_NE(reply.message().find("is in use on lan0 by"), std::string::npos) << reply;
    EXPECT_EQ(run(pod->ns(), words("ip link show net1")).rc, 1);
}

// On the same wire, but of another link: what is on another VLAN, and what a router has forwarded.
TEST_P(Lan, NobodyOnAnotherLinkClaimsAnAddress) {
    const Wire wire(host_->ns(), "eth0");
    const ip_addr probed[] = {ip("192.168.133.200"), ip("2001:db8:133::200")};
    const Mac all_nodes{0x33, 0x33, 0, 0, 0, 1};
    Bytes arp = frame(Mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, wire.mac(), 0x0806,
                      to_bytes(Arp{2, wire.mac(), probed[0], {}, probed[0]}));
    Packet advertisement = neighbour({probed[1], ip("ff02::1")}, 136, 0x20000000, probed[1], 2, wire.mac());
    Bytes tagged = frame(all_nodes, wire.mac(), advertisement);
    advertisement.hop_limit = 254;
    for (Bytes *of_a_vlan : {&arp, &tagged})
        of_a_vlan->insert(of_a_vlan->begin() + 12, {0x81, 0, 0, 100});
    std::atomic<bool> done = false;
    std::thread claims([&] {
        while (!done) {
            for (const Bytes &claim : {arp, tagged, frame(all_nodes, wire.mac(), advertisement)})
                wire.send(claim);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    const Reply reply = lab_.try_add(pod, lan());
    done = true;
    claims.join();
    EXPECT_EQ(reply.rc, 0) << reply;
}

TEST_P(Lan, NothingIsLeftBehind) {
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    const std::string before = node().state() + node().run("ip -6 neigh show proxy");
    lab_.add(pod, lan());
    EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
    EXPECT_EQ(lab_.check(pod, "eth0").rc, 0) << lab_.check(pod, "eth0");
    EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    std::string after = node().state() + node().run("ip -6 neigh show proxy");
    const std::string kept = "qdisc clsact ffff: dev lan0 parent ffff:fff1 \n";
    if (const std::size_t at = after.find(kept); at != std::string::npos)
        after.erase(at, kept.size());
    EXPECT_EQ(after, before);
    EXPECT_EQ(lab_.check(pod, "eth0").rc, 0) << lab_.check(pod, "eth0");
}

// An entry that the administrator added, for whatever reason, outlives the pod that has its address for a while.
TEST_P(Lan, AProxyEntryOfTheAdministratorStays) {
    for (const char *address : {"2001:db8:133::200", "2001:db8:133::1:1"})
        node().run("ip -6 neigh add proxy " + std::string(address) + " dev lan0");
    const std::string before = node().run("ip -6 neigh show proxy");
    const auto first = add_pod();
    ASSERT_EQ(to_string(SourceLab::addr(*first, "net1", false)), "2001:db8:133::200");
    const auto second = add_pod();
    EXPECT_NE(node().run("ip -6 neigh show proxy").find("2001:db8:133::201"), std::string::npos);
    EXPECT_EQ(lab_.check(first, "net1").rc, 0) << lab_.check(first, "net1");
    for (const auto &pod : {first, second})
        EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    EXPECT_EQ(node().run("ip -6 neigh show proxy"), before);
}

// Behind an IPAM plugin, and behind another plugin that made the interface: the link is probed, announced to and
// answered alike.
TEST_P(Lan, ChainedItIsTheSame) {
    const Json alone = lan().plugins.at(0);
    Json after = alone;
    after.erase("ipam");
    after["gateway"] = {"192.168.133.1", "2001:db8:133::1"};
    Json ipam = {{"type", "host-local"}, {"ipam", alone.at("ipam")}};
    Json ptp = {{"type", "ptp"}, {"ipam", alone.at("ipam")}};
    // ptp puts the gateway's address on the host-side veth.
    ptp["ipam"]["ranges"][0][0]["gateway"] = "192.168.133.221";
    ptp["ipam"]["ranges"][1][0]["gateway"] = "2001:db8:133::221";
    for (const Json &first : {ipam, ptp}) {
        const auto pod = node().container();
        lab_.add(pod, "eth0", 0);
        const Wire heard(host_->ns(), "eth0");
        lab_.add(pod, {"net1", "lan", {first, after}});
        EXPECT_TRUE(is_announced(heard)) << first.at("type");
        EXPECT_EQ(node().run("ip -6 neigh show proxy").find("2001:db8:133::2") != std::string::npos, true);
        const EchoServer server(pod->ns(), GetParam(), kPort);
        EXPECT_TRUE(ping(host_->ns(), to_string(addr(*pod)), 2)) << first.at("type");
        EXPECT_EQ(ask(host_->ns(), Transport::tcp, {addr(*pod), kPort}), 0) << first.at("type");
        EXPECT_EQ(ask(far_->ns(), Transport::tcp, {addr(*pod), kPort}), 0) << first.at("type");
        EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
        (void)run(node().ns(),
                  words("ip -6 neigh del proxy " + to_string(SourceLab::addr(*pod, "net1", false)) + " dev lan0"));
        EXPECT_THAT(lab_.check(pod, "net1").details(), testing::HasSubstr("`podlanectl repair`"));
        (void)node().podlanectl("repair"); // it finds ranges of other machines too
        EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
        EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
        EXPECT_EQ(node().run("ip -6 neigh show proxy"), "");
    }
}

// As the pod's own addresses do: no other route of the node leads there in their name.
TEST_P(Lan, AllowedSourcesLeaveByTheLan) {
    const std::string allowed = GetParam() ? "192.168.133.77" : "2001:db8:133::77";
    const auto pod = add_pod({{"allowedSources", {allowed}}});
    const Wire sender(pod->ns(), "net1"), elsewhere(lab_.provider(0).ns(), "eth0");
    const Wire neighbour(host_->ns(), "eth0"), far(far_->ns(), "eth0");
    // Again and again: while an address of lan0 is tentative, its neighbours are not found.
    EXPECT_TRUE(wait_until([&] {
        for (const ip_addr &to : {host_addr(), far_addr()})
            sender.send(frame(PODLANE_HOST_MAC, sender.mac(), udp({ip(allowed), to})));
        return frames_from(neighbour, ip(allowed)) > 0 && frames_from(far, ip(allowed)) > 0;
    }));
    EXPECT_EQ(frames_from(elsewhere, ip(allowed)), 0U);
}

// On another uplink, in the name of the LAN's host: what nobody answered for does not pull flows from their path.
TEST_P(Lan, AnotherUplinkDoesNotSpeakForTheLan) {
    for (const char *where : {"all", "up0"})
        node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
    const EchoServer server(host_->ns(), GetParam(), kPort);
    const Wire wire(lab_.provider(0).ns(), "eth0");
    const Mac gateway = Wire(node().ns(), "up0").mac();
    std::uint16_t port = 30000;
    const auto speak = [&](const Container &pod, Transport transport, bool forged_before) {
        const std::uint32_t veth = SourceLab::host_veth(pod, "net1");
        const auto forge = [&] {
            const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
            const Ends forged{host_addr(), addr(pod), kPort, port};
            wire.send(frame(gateway, wire.mac(), udp(forged)));
            for (const int flags : std::initializer_list<int>{tcp_syn, tcp_syn | tcp_ack, tcp_ack})
                wire.send(frame(gateway, wire.mac(), tcp(forged, static_cast<std::uint8_t>(flags))));
            EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) >= before + 4; }))
                << "the forged packets do not arrive";
        };
        ++port;
        if (forged_before)
            forge();
        const Fd socket = open_socket(pod.ns(), transport, GetParam(), {addr(pod), port});
        ASSERT_EQ(connect_to(socket, {host_addr(), kPort}), 0);
        for (int i = 0; i < 3; ++i) {
            ASSERT_EQ(send_text(socket, "hello"), 0);
            // With UDP what was forged arrives as well, as it does without Podlane.
            std::string text;
            EXPECT_TRUE(wait_until([&] { return (text = receive(socket).text) == "hello" || text.empty(); }));
            EXPECT_EQ(text, "hello");
            forge();
        }
    };
    for (const char *first_packet : {"host", "direct"}) {
        const auto pod = add_pod({{"firstPacket", first_packet}});
        for (const Transport transport : {Transport::tcp, Transport::udp})
            for (const bool forged_before : {false, true}) {
                SCOPED_TRACE(std::string(first_packet) + (transport == Transport::tcp ? ", TCP" : ", UDP") +
                             (forged_before ? ", forged before" : ""));
                speak(*pod, transport, forged_before);
            }
    }
}

// A connection that the host stack has delivered, translated or not, is answered through it: conntrack knows it, so
// that an entry that others have evicted from the path cache meanwhile costs nothing.
TEST_P(Lan, AnEvictedPathCostsNothing) {
    const auto pod = add_pod({{"firstPacket", "host"}});
    const Endpoint own{addr(*pod), kPort};
    const std::string address = to_string(own.addr);
    const std::string node_addr = SourceLab::on_link(0, 2, GetParam());
    (void)lab_.provider(0).run("ip route add " + address + " via " + node_addr);
    node().run(std::string(GetParam() ? "ip" : "ip -6") + " rule add pref 1001 from " + address + " lookup 100");
    for (const char *protocol : {"tcp", "udp"})
        node().run(std::string(GetParam() ? "iptables" : "ip6tables") + " -w -t nat -A PREROUTING -i up0 -p " +
                   protocol + " --dport 8080 -j DNAT --to-destination " + (GetParam() ? address : "[" + address + "]") +
                   ":" + std::to_string(kPort));
    const Paths paths = require(open_paths(node().bpffs(), Access::read_write));
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const Fd datagrams = open_socket(pod->ns(), Transport::udp, GetParam(), own);
    const Fd listener = open_socket(pod->ns(), Transport::tcp, GetParam(), own);
    ASSERT_EQ(listen(listener.get(), 8), 0);
    std::uint16_t port = 30000;
    for (const Endpoint &to : {Endpoint{ip(node_addr), 8080}, own})
        for (const Transport transport : {Transport::tcp, Transport::udp}) {
            SCOPED_TRACE(to_string(to.addr) + (transport == Transport::tcp ? ", TCP" : ", UDP"));
            const Endpoint caller{ip(SourceLab::client_addr(0, GetParam())), ++port};
            const Fd client = test::connected(lab_.client(0).ns(), transport, to, caller);
            const Fd connection = transport == Transport::tcp ? accepted(listener) : Fd();
            const Fd &server = transport == Transport::tcp ? connection : datagrams;
            ASSERT_EQ(send_text(client, "question"), 0);
            sockaddr_storage from{};
            socklen_t size = sizeof from;
            auto *const asking = transport == Transport::tcp ? nullptr : reinterpret_cast<sockaddr *>(&from);
            std::array<char, 64> text{};
            ASSERT_TRUE(wait_until(
                [&] { return recvfrom(server.get(), text.data(), text.size(), MSG_DONTWAIT, asking, &size) > 0; }));
            for (const path_key &key : require(paths.keys()))
                (void)require(paths.remove(key));
            ASSERT_EQ(sendto(server.get(), "answer", 6, 0, asking, asking ? size : 0), 6);
            EXPECT_EQ(receive(client).text, "answer");
        }
    EXPECT_EQ(lab_.count(veth, REASON_SENT_WAY), 0U);
}

// Of a protocol that conntrack cannot be queried about.
class LanOfOthers : public Lan {
  protected:
    static constexpr int kProtocol = 253; // for experiments (RFC 3692)

    [[nodiscard]] static bool receives(const Fd &socket, const std::string &text,
                                       std::chrono::milliseconds most = std::chrono::seconds(2)) {
        return wait_until([&] { return receive(socket, 65536, std::chrono::milliseconds(50)).text.ends_with(text); },
                          most);
    }
    void evict() {
        const Paths paths = require(open_paths(lab_.node().bpffs(), Access::read_write));
        for (const path_key &key : require(paths.keys()))
            (void)require(paths.remove(key));
    }
    // The client of provider 0 reaches the pod's address of the LAN through the host stack, and the pod replies there.
    std::shared_ptr<Container> add_pod_by_two_ways() {
        for (const char *where : {"all", "up0"})
            node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
        auto pod = add_pod();
        const std::string address = to_string(addr(*pod));
        (void)lab_.provider(0).run("ip route add " + address + " via " + SourceLab::on_link(0, 2, GetParam()));
        node().run(std::string(GetParam() ? "ip" : "ip -6") + " rule add pref 1001 from " + address + " lookup 100");
        return pod;
    }
};

TEST_P(LanOfOthers, AnEvictedPathCostsNothing) {
    const auto pod = add_pod_by_two_ways();
    const ip_addr far = ip(SourceLab::client_addr(0, GetParam()));
    const Fd client = open_raw(lab_.client(0).ns(), kProtocol, far, addr(*pod)),
             of_far = open_raw(pod->ns(), kProtocol, addr(*pod), far);
    const Fd neighbour = open_raw(host_->ns(), kProtocol, host_addr(), addr(*pod)),
             of_near = open_raw(pod->ns(), kProtocol, addr(*pod), host_addr());
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    // A packet in the neighbour's name by another uplink moves nothing, whether the path is cached or evicted.
    const Wire wire(lab_.provider(0).ns(), "eth0");
    const Bytes forged =
        frame(Wire(node().ns(), "up0").mac(), wire.mac(), other({host_addr(), addr(*pod), 0, 0}, kProtocol));
    for (int round = 0; round < 3; ++round) {
        for (const auto &[peer, own] : {std::pair(&client, &of_far), std::pair(&neighbour, &of_near)}) {
            ASSERT_EQ(send_text(*peer, "question"), 0);
            EXPECT_TRUE(receives(*own, "question"));
        }
        evict();
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        wire.send(forged);
        EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) > before; }));
        for (const auto &[peer, own] : {std::pair(&client, &of_far), std::pair(&neighbour, &of_near)}) {
            ASSERT_EQ(send_text(*own, "answer"), 0);
            EXPECT_TRUE(receives(*peer, "answer"));
        }
    }
    // The test's own foundation.
    ASSERT_EQ(send_text(client, "question"), 0);
    EXPECT_TRUE(receives(of_far, "question"));
    evict();
    require(require(open_kept_paths(node().bpffs(), Access::read_write)).update(veth, kept_paths{}));
    ASSERT_EQ(send_text(of_far, "answer"), 0);
    EXPECT_FALSE(receives(client, "answer", std::chrono::milliseconds(300)));
}

// Whoever fills the slots of an endpoint does not get those that are in use.
TEST_P(LanOfOthers, PathsInUseAreKeptInAFlood) {
    const auto pod = add_pod_by_two_ways();
    const ip_addr far = ip(SourceLab::client_addr(0, GetParam()));
    const Fd client = open_raw(lab_.client(0).ns(), kProtocol, far, addr(*pod)),
             of_far = open_raw(pod->ns(), kProtocol, addr(*pod), far);
    ASSERT_EQ(send_text(client, "question"), 0);
    EXPECT_TRUE(receives(of_far, "question"));
    const Wire wire(host_->ns(), "eth0");
    const Mac gateway = Wire(node().ns(), "lan0").mac();
    const std::string prefix = GetParam() ? "192.168.133." : "2001:db8:133::";
    for (int host = 20; host < 190; ++host)
        wire.send(frame(gateway, wire.mac(), other({ip(prefix + std::to_string(host)), addr(*pod), 0, 0}, kProtocol)));
    EXPECT_TRUE(wait_until([&] { return lab_.count(uplink(), REASON_UPLINK_DELIVERED) >= 170; }));
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const auto all = require(require(open_kept_paths(node().bpffs(), Access::read_only)).find(veth)).value();
    EXPECT_EQ(std::ranges::count_if(all.paths, [](const kept_path &one) { return one.path.since_ns != 0; }),
              KEPT_PATHS);
    evict();
    ASSERT_EQ(send_text(of_far, "answer"), 0);
    EXPECT_TRUE(receives(client, "answer"));
}

// The test's own foundation: what comes from behind the router is answered by eth0, and lost.
TEST_P(Lan, WithoutSourceRoutingAnswersAreLost) {
    const auto pod = add_pod({{"sourceRouting", false}});
    const EchoServer server(pod->ns(), GetParam(), kPort);
    for (const char *how : kHows)
        EXPECT_FALSE(is_answered(far_->ns(), how, addr(*pod), kPort)) << how;
}

// The kernel answers "not forwarded" for the node's addresses and for those that no route leads to.
TEST_P(Lan, WithoutADefaultRouteTheNodeKnowsItsAddresses) {
    for (const char *family : {"-4", "-6"})
        (void)run(node().ns(), words(std::string("ip ") + family + " route del default"));
    const auto pod = add_pod();
    const ip_addr own = ip(SourceLab::on_link(0, 2, GetParam()));
    const EchoServer on_node(node().ns(), GetParam(), kPort), server(pod->ns(), GetParam(), kPort);
    EXPECT_EQ(ask(pod->ns(), Transport::tcp, {own, kPort}, "hello", {addr(*pod), 0}), 0);
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(far_->ns(), transport, {addr(*pod), kPort}), 0) << "of no route of the node";
    const Wire wire(host_->ns(), "eth0");
    const Mac gateway = Wire(node().ns(), "lan0").mac();
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const std::uint64_t sent = lab_.count(veth, REASON_SENT_WAY);
    const std::uint64_t before = lab_.count(uplink(), REASON_HOST_SOURCE_LOCAL);
    wire.send(frame(gateway, wire.mac(), udp({own, addr(*pod), 4000, kPort}, 24)));
    EXPECT_TRUE(wait_until([&] { return lab_.count(uplink(), REASON_HOST_SOURCE_LOCAL) > before; }));
    // The host stack drops it, or, of IPv6, which has no reverse path filter, has the reply itself.
    EXPECT_TRUE(wait_until([&] { return std::ranges::count(server.callers(), own) == (GetParam() ? 0 : 1); }));
    EXPECT_EQ(lab_.count(veth, REASON_SENT_WAY), sent) << "no reply to the forger";
}

INSTANTIATE_TEST_SUITE_P(Family, Lan, testing::Bool(), family_name);
INSTANTIATE_TEST_SUITE_P(Family, LanOfOthers, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
