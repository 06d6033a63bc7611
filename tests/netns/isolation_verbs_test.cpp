// SPDX-License-Identifier: MIT
// Isolation from the first packet to the last, and while groups change.
#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "maps/clock.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/isolation.hpp"
#include "tests/netns/kube_proxy.hpp"

#include <atomic>
#include <thread>

namespace podlane::test {
namespace {

// Of a hostile scan: what it sends carries this.
const std::string kForbidden = "forbidden-forbidden";

// Sends datagrams to addresses, from a socket, again and again.
class Scan {
  public:
    Scan(const net::Namespace &from, bool ipv4, std::vector<ip_addr> targets)
        : socket_(open_socket(from, Transport::udp, ipv4, {{}, 40000})), sending_([this, targets = std::move(targets)] {
              for (const ip_addr &target : targets)
                  sent_ += send_datagram(socket_, {target, kPort}, kForbidden) ? 1 : 0;
          }) {}

    [[nodiscard]] std::uint64_t sent() const { return sent_; }

  private:
    Fd socket_;
    std::atomic<std::uint64_t> sent_ = 0;
    Repeat sending_;
};

using IsolationVerbs = IsolationTest;
INSTANTIATE_TEST_SUITE_P(All, IsolationVerbs, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "V4" : "V6"); });

// Pods come and go at the same addresses under a scan of them all. PODLANE_STARTS says how many do.
TEST_P(IsolationVerbs, NothingForbiddenArrivesFromAddToDel) {
    const char *given = std::getenv("PODLANE_STARTS");
    const int starts = given != nullptr ? std::atoi(given) : 12;
    const Pod scanner = make(isolated("hostile"));
    std::vector<ip_addr> targets;
    for (int i = 3; i < 8; ++i)
        targets.push_back(ip(ipv4() ? "198.18.9." + std::to_string(i) : "2001:db8:9::" + std::to_string(i)));
    const Scan scan(scanner.ns(), ipv4(), targets);
    std::size_t arrived = 0;
    for (int i = 0; i < starts; ++i) {
        const auto container = node_.container();
        const int fixed = 3 + i % 5;
        Json keys = isolated("victims");
        keys["runtimeConfig"] = {
            {"ips", {"198.18.9." + std::to_string(fixed), "2001:db8:9::" + std::to_string(fixed)}}};
        keys["capabilities"] = {{"ips", true}};
        keys["attach"] = i % 2 == 0 ? "auto" : "clsact";
        // Before there is an interface: it has the first packet that arrives.
        const Fd socket = open_socket(container->ns(), Transport::udp, ipv4(), {{}, kPort});
        ASSERT_THAT(add(*container, keys), succeeds());
        const Pod pod = observe(node_, container);
        EXPECT_TRUE(wait_until([&] { return drops(pod) > 2; })) << "the scan reaches the pod's host-side veth";
        if (i % 3 == 0)
            arrived += datagrams_at(socket);
        ASSERT_THAT(del(*container, keys), succeeds());
        arrived += datagrams_at(socket);
    }
    EXPECT_EQ(arrived, 0U);
    EXPECT_GT(scan.sent(), 0U);
    std::cout << starts << " starts, " << scan.sent() << " datagrams sent, " << arrived << " arrived\n";
}

// An earlier owner of the address had a connection with the hostile pod, which goes on as if nothing had happened.
TEST_P(IsolationVerbs, AnEarlierOwnersConnectionIsNotTheNewPods) {
    const Json tracked = {{"firstPacket", "host"}};
    const Pod hostile = make(tracked), before = make(tracked);
    const ip_addr reused = addr(before);
    {
        const EchoServer server(hostile.ns(), ipv4(), kPort);
        for (int i = 0; i < 3; ++i)
            ASSERT_EQ(ask(before.ns(), Transport::udp, {addr(hostile), kPort}, "hello", {{}, 40000}), 0);
    }
    ASSERT_THAT(del(*before.container), succeeds());
    const Fd answering = open_socket(hostile.ns(), Transport::udp, ipv4(), {{}, kPort});
    Json keys = isolated("victims");
    const std::vector<std::string> both = {before.text4(), before.text6()};
    keys["runtimeConfig"] = {{"ips", both}};
    keys["capabilities"] = {{"ips", true}};
    const auto container = node_.container();
    const Fd socket = open_socket(container->ns(), Transport::udp, ipv4(), {{}, 40000});
    ASSERT_THAT(add(*container, keys), succeeds());
    const Pod pod = observe(node_, container);
    ASSERT_EQ(connect_to(answering, {reused, 40000}), 0);
    const std::uint64_t dropped = drops(pod);
    EXPECT_TRUE(wait_until([&] {
        (void)send_text(answering, kForbidden);
        return drops(pod) > dropped + 3;
    }));
    EXPECT_EQ(datagrams_at(socket), 0U);
}

TEST_P(IsolationVerbs, MembershipChangesWithTheNextPacket) {
    const Pod a = make(isolated("tenant-a"), named("shop", "a"));
    const Pod b = make(isolated("tenant-b"), named("shop", "b"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    const auto asks = [&] { return ask(b.ns(), Transport::udp, {addr(a), kPort}, "x"); };
    ASSERT_EQ(ctl("group add tenant-a --pod b").rc, 0) << ctl("group add tenant-a --pod b").err;
    EXPECT_EQ(asks() + asks() + asks(), 0);
    const Fd open = connected(b.ns(), Transport::tcp, {addr(a), kPort});
    EXPECT_EQ(transfer(open, std::size_t{1} << 20U), 0) << "on the fast path in the end";
    EXPECT_EQ(ctl_json("endpoint show shop/b").at(0)["groups"], Json({"tenant-b", "tenant-a"}));
    EXPECT_EQ(ctl("doctor").rc, 0) << ctl("doctor").out;
    ASSERT_EQ(ctl("group remove tenant-a --pod b").rc, 0);
    const std::uint64_t before = drops(a) + drops(b);
    ASSERT_EQ(send_text(open, "no longer"), 0);
    EXPECT_TRUE(wait_until([&] { return drops(a) + drops(b) > before; })) << "an open connection ends";
    EXPECT_EQ(receive(open, 100, quiet()).error, ETIMEDOUT);
    EXPECT_EQ(ctl("group add tenant-a").rc, 2) << "whose is not said";
    EXPECT_EQ(ctl("group add tenant-a --pod nobody").rc, 1);
    for (int i = 0; i < 7; ++i)
        EXPECT_EQ(ctl("group add more-" + std::to_string(i) + " --pod b").rc, 0);
    for (const char *whose : {"--pod b", "--namespace shop"}) {
        EXPECT_THAT(ctl(std::string("group add too-many ") + whose), complains(1, {"9 groups"}));
        EXPECT_EQ(ctl_json("endpoint show shop/a").at(0)["groups"], Json({"tenant-a"})) << "all, or none";
    }
    EXPECT_THAT(check(b, isolated("tenant-b"), named("shop", "b")), succeeds());
}

// Not once for each of them.
TEST_P(IsolationVerbs, MembershipOfManyReadsEachRecordOnce) {
    std::vector<Pod> pods;
    for (int i = 0; i < 6; ++i)
        pods.push_back(make(isolated("tenant-a"), named("shop", "pod-" + std::to_string(i))));
    const std::string trace = node_.dir() + "/trace";
    std::vector<std::string> argv = {"strace", "-f", "-qq", "-e", "trace=openat,open", "-o", trace};
    const auto command = ctl_argv(node_.bpffs(), "group add tenant-b --namespace shop");
    argv.insert(argv.end(), command.begin(), command.end());
    ASSERT_EQ(run(node_.ns(), argv).rc, 0);
    const std::string file = "/" + pods.front().container->id() + ":eth0\"";
    std::istringstream calls(read_file(trace));
    int reads = 0;
    for (std::string line; std::getline(calls, line);)
        reads += line.find(file) != std::string::npos && line.find("O_WRONLY") == std::string::npos ? 1 : 0;
    EXPECT_EQ(reads, 1) << read_file(trace);
    for (const Pod &pod : pods)
        EXPECT_EQ(ctl_json("endpoint show --container " + pod.container->id()).at(0)["groups"],
                  Json({"tenant-a", "tenant-b"}));
}

// With the fast path's decision cached: it ends with the next change, and is that of one interface.
TEST_P(IsolationVerbs, ACachedDecisionEndsWithTheNextChange) {
    const auto lasting = [](const std::string &group) {
        Json keys = isolated(group);
        keys["confirmIntervalMs"] = 60000; // conntrack's word is not what ends it
        keys["uplinks"] = {"up0"};
        keys["groupCIDRs"] = {{"outsiders", {"203.0.113.0/24", "2001:db8:cafe::/64"}}};
        return keys;
    };
    const Pod a = make(lasting("tenant-a"), named("shop", "a"));
    const Pod b = make(lasting("tenant-b"), named("shop", "b"));
    if (!require(programs_query_conntrack(node_.bpffs())))
        GTEST_SKIP() << "no flow is cached";
    (void)must_run(outside_->ns(), words(ipv4() ? "ip route add 198.18.9.0/24 via 203.0.113.2"
                                                : "ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    ASSERT_EQ(ctl("group add tenant-a --pod b").rc, 0);
    ASSERT_EQ(ctl("group add outsiders --pod a").rc, 0);
    const Flows flows = open(&open_flows);
    const auto allowed = [&](std::uint32_t sender) {
        std::vector<std::pair<flow_key, flow>> found;
        for (const auto &entry : require(flows.entries()))
            if (entry.second.ifindex == sender && (entry.second.flags & FLOW_ALLOWED) != 0)
                found.push_back(entry);
        return found;
    };
    const auto drops_more = [&](const Fd &socket) {
        const std::uint64_t before = drops(a); // replies end at the other one
        return send_text(socket, "no longer") == 0 && wait_until([&] { return drops(a) > before; });
    };
    net::Netlink host = require(net::Netlink::open_in(node_.ns()));
    const std::uint32_t uplink = require(net::find_link(host, "up0"))->ifindex;
    for (const auto &[from, sender, forbid] : {std::tuple{&b.ns(), b.ifindex, "group remove tenant-a --pod b"},
                                               std::tuple{&outside_->ns(), uplink, "group remove outsiders --pod a"}}) {
        SCOPED_TRACE(forbid);
        const Fd open_one = connected(*from, Transport::tcp, {addr(a), kPort});
        ASSERT_EQ(transfer(open_one, std::size_t{1} << 20U), 0);
        const auto cached = allowed(sender);
        ASSERT_EQ(cached.size(), 1U);
        ASSERT_EQ(ctl(forbid).rc, 0);
        EXPECT_TRUE(drops_more(open_one));

        // Of the same addresses, as another network may have them, and by another interface: nothing is let through.
        auto [key, entry] = cached.front();
        entry.confirmed_ns = monotonic_ns() & ~FLOW_LOST;
        entry.flags = (entry.flags & (FLOW_REPLY | FLOW_TRANSLATED)) | FLOW_ALLOWED |
                      require(open(&open_watches).find(0))->isolation_changes << FLOW_CHANGES_SHIFT;
        entry.ifindex = a.ifindex;
        require(flows.update(key, entry));
        EXPECT_TRUE(drops_more(open_one));
    }
}

// A call that was killed before it counted its change is repeated, and finds nothing to change.
TEST_P(IsolationVerbs, ARepeatedChangeIsCounted) {
    const auto changes = [&] { return require(open(&open_watches).find(0))->isolation_changes; };
    (void)make(isolated("tenant-a"), named("shop", "isolated"));
    (void)make(Json::object(), named("shop", "open"));
    for (const std::string pod : {"isolated", "open"})
        for (const std::string change : {"group add tenant-b --pod ", "group remove tenant-b --pod "})
            for (int i = 0; i < 2; ++i) {
                SCOPED_TRACE(change + pod);
                const std::uint32_t before = changes();
                ASSERT_EQ(ctl(change + pod).rc, 0);
                EXPECT_NE(changes(), before);
            }
}

// A further network's ADD makes all interfaces of the container members of its groups.
TEST_P(IsolationVerbs, AFurtherNetworkGivesItsGroups) {
    const Pod a = make(isolated("tenant-a"));
    const Pod b = make(isolated("tenant-b"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    Json second = node_.config(isolated("tenant-a"));
    second["name"] = "second";
    second["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
    expect_refused(b.ns(), addr(a));
    Json too_many = second;
    for (int i = 0; i < 7; ++i)
        too_many["groups"].push_back("name:more-" + std::to_string(i));
    EXPECT_THAT(node_.cni("ADD", too_many, *b.container, {{"CNI_IFNAME", "net1"}}), fails_with(7, {"9 groups"}));
    expect_refused(b.ns(), addr(a));
    ASSERT_THAT(node_.cni("ADD", second, *b.container, {{"CNI_IFNAME", "net1"}}), succeeds());
    EXPECT_EQ(ask(b.ns(), Transport::udp, {addr(a), kPort}), 0);
    EXPECT_EQ(ctl("doctor").rc, 0) << ctl("doctor").out;
    EXPECT_THAT(node_.cni("DEL", second, *b.container, {{"CNI_IFNAME", "net1"}}), succeeds());
}

// The entries are lost: nothing is let in, doctor says so and repairs it.
TEST_P(IsolationVerbs, LostEntriesLetNobodyInUntilTheyAreRepaired) {
    const Pod a = make(isolated("tenant-a"));
    const Pod b = make(isolated("tenant-a"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    ASSERT_EQ(ask(b.ns(), Transport::tcp, {addr(a), kPort}), 0);
    (void)require(open(&open_isolations).remove(a.ifindex));
    expect_refused(b.ns(), addr(a));
    expect_refused(node_.ns(), addr(a)); // its leave is in the entry
    EXPECT_THAT(check(a, isolated("tenant-a")), fails_with(105, {"groups"}));
    EXPECT_NE(ctl("doctor").rc, 0);
    EXPECT_EQ(ctl("doctor --fix").rc, 0) << ctl("doctor --fix").out;
    EXPECT_EQ(ask(b.ns(), Transport::tcp, {addr(a), kPort}), 0);
    EXPECT_THAT(check(a, isolated("tenant-a")), succeeds());
}

// The entry that says that the pod is isolated is lost.
TEST_P(IsolationVerbs, ALostInterfaceLetsNobodyInUntilItIsRepaired) {
    constexpr std::uint32_t kNobodys = 0;
    const Pod a = make(isolated("tenant-a"));
    const Pod b = make(isolated("tenant-a"));
    const Pod hostile = make(isolated("hostile"));
    const Fd socket = open_socket(a.ns(), Transport::udp, ipv4(), {{}, kPort});
    (void)require(open(&open_interfaces).remove(a.ifindex));
    {
        const Scan scan(hostile.ns(), ipv4(), {addr(a)});
        EXPECT_TRUE(wait_until([&] { return node_.counted(kNobodys, REASON_DROP_UNKNOWN_ENDPOINT).packets > 100; }));
    }
    EXPECT_EQ(datagrams_at(socket), 0U);
    EXPECT_EQ(ctl("doctor --fix").rc, 0) << ctl("doctor --fix").out;
    const EchoServer server(a.ns(), ipv4(), kPort + 1);
    EXPECT_EQ(ask(b.ns(), Transport::tcp, {addr(a), kPort + 1}), 0);
}

// Keys of isolation beside groups.
TEST_P(IsolationVerbs, AllowHostOutsideAndGroupCidrsMakeExceptions) {
    Json keys = isolated("tenant-a");
    keys["allow"] = Json::array({Json::array({"tenant-b", "tenant-a"})});
    keys["host"] = "deny";
    keys["groupCIDRs"] = {{"tenant-b", {"203.0.113.0/24", "2001:db8:cafe::/64"}}};
    const Pod a = make(keys);
    const Pod b = make(isolated("tenant-b"));
    const Pod c = make(isolated("tenant-c"));
    (void)must_run(outside_->ns(), words(ipv4() ? "ip route add 198.18.9.0/24 via 203.0.113.2"
                                                : "ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    EXPECT_EQ(ask(b.ns(), Transport::tcp, {addr(a), kPort}), 0) << "a pair";
    EXPECT_EQ(ask(outside_->ns(), Transport::tcp, {addr(a), kPort}), 0) << "a member on another node";
    expect_refused(c.ns(), addr(a));
    expect_refused(node_.ns(), addr(a));
    const EchoServer node_server(node_.ns(), ipv4(), kPort);
    EXPECT_EQ(ask(a.ns(), Transport::tcp, {ip(ipv4() ? "203.0.113.2" : "2001:db8:cafe::2"), kPort}), 0)
        << "the node's answers";
}

// By a Service the sender's address and the receiver's are not what the pod has sent.
TEST_P(IsolationVerbs, ServicesLeadMembersOnly) {
    const Pod a = make(isolated("tenant-a"));
    const Pod b = make(isolated("tenant-a"));
    const Pod c = make(isolated("tenant-c"));
    const KubeService service{"a", ip(ipv4() ? "198.18.255.1" : "2001:db8:5e::1"), 80, {addr(a)}, kPort};
    const KubeProxy proxy({service}, ipv4() ? "198.18.9.0/24" : "2001:db8:9::/64");
    node_.run(ipv4() ? "iptables-restore" : "ip6tables-restore", proxy.iptables());
    const EchoServer server(a.ns(), ipv4(), kPort);
    const Endpoint to{service.cluster_ip, 80};
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(ask(b.ns(), Transport::tcp, to), 0);
    EXPECT_EQ(ask(a.ns(), Transport::tcp, to), 0) << "itself";
    const Fd open = connected(b.ns(), Transport::tcp, to);
    EXPECT_EQ(transfer(open, std::size_t{1} << 20U), 0);
    expect_refused(c.ns(), to.addr, to.port);
}

TEST_P(IsolationVerbs, ByNetworkOnlyItsOwnPodsConnect) {
    const Json keys = {{"isolation", "network"}};
    const Pod a = make(keys);
    const Pod b = make(keys);
    Json second = node_.config();
    second["name"] = "second";
    second["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
    const auto other = node_.container();
    ASSERT_THAT(node_.cni("ADD", second, *other), succeeds());
    const EchoServer server(a.ns(), ipv4(), kPort);
    const EchoServer of_other(other->ns(), ipv4(), kPort);
    EXPECT_EQ(ask(b.ns(), Transport::tcp, {addr(a), kPort}), 0);
    expect_refused(other->ns(), addr(a));
    EXPECT_EQ(ask(a.ns(), Transport::tcp, {addr(observe(node_, other)), kPort}), 0) << "answers return";
    EXPECT_THAT(node_.cni("DEL", second, *other), succeeds());
}

// A kernel that is locked down in mode confidentiality, or, on any other, programs that were loaded as they are there.
class LockedDown : public CtlTest {
  protected:
    LockedDown() {
        const net::Entered inside = require(net::enter(node_.ns()));
        require(ensure_loaded(node_.bpffs(), {.replies = false}));
    }
};

TEST_F(LockedDown, EverythingWorksButIsolation) {
    const Json isolated = {{"isolation", "network"}};
    const Pod first = make();
    const Pod second = make();
    const EchoServer server(second.ns(), true, kPort);
    EXPECT_EQ(ask(first.ns(), Transport::tcp, {second.addr(true), kPort}), 0);
    const auto container = node_.container();
    EXPECT_THAT(add(*container, isolated), fails_with(50, {"isolation", "locked down"}));
    EXPECT_THAT(del(*container, isolated), succeeds());
    Json config = node_.config(isolated);
    config["cniVersion"] = "1.1.0";
    EXPECT_THAT(node_.cni("STATUS", config, *container), fails_with(50, {"isolation", "locked down"}));
    EXPECT_THAT(ctl("status").out, testing::HasSubstr("\"isolation\" is refused: the kernel is locked down"));
    EXPECT_THAT(ctl("doctor").out, testing::HasSubstr("isolation-refused"));
}

} // namespace
} // namespace podlane::test
