// SPDX-License-Identifier: MIT
// veth pairs are born finished in two namespaces, say what they are, and go without a trace.
// Namespaces are opened by any path, entered and left; sysctls are those of the namespace one is in.
#include "loader/net/link_group.hpp"
#include "net_fixture.hpp"
#include "tests/harness/process.hpp"

#include <net/if_arp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>
#include <filesystem>
#include <fstream>

namespace podlane::net::test {
namespace {

TEST_F(NetTest, VethIsBornFinishedInBothNamespaces) {
    const Veth made = veth();

    EXPECT_EQ(made.host.name, "cali0");
    EXPECT_EQ(made.host.kind, "veth");
    EXPECT_EQ(made.host.mac, kHostMac);
    EXPECT_EQ(made.host.mtu, kMtu);
    EXPECT_EQ(made.host.type, ARPHRD_ETHER);
    EXPECT_FALSE(made.host.up);
    EXPECT_TRUE(made.host.peer_nsid);

    const Link eth0 = require(find_link(pod_, made.pod_ifindex)).value();
    EXPECT_EQ(eth0.name, "eth0");
    EXPECT_EQ(eth0.mac, kPodMac);
    EXPECT_EQ(eth0.mtu, kMtu);
    EXPECT_EQ(eth0.peer_ifindex, made.host.ifindex);

    const Link found = require(find_link(node_, "cali0")).value();
    EXPECT_EQ(made.host.ifindex, found.ifindex);
    EXPECT_EQ(made.host.peer_ifindex, found.peer_ifindex);
    EXPECT_EQ(made.host.peer_nsid, found.peer_nsid);
    EXPECT_EQ(made.host.qdisc, found.qdisc);
    EXPECT_EQ(made.host.flags, found.flags);
    EXPECT_TRUE(require(find_link(pod_, "eth0")));
    EXPECT_FALSE(require(find_link(pod_, "cali0"))) << "a socket stays where it was opened";
    EXPECT_FALSE(require(find_link(node_, "eth0")));
    EXPECT_FALSE(require(find_link(node_, 0xff000001))) << "of no interface, as in a damaged entry";
}

TEST_F(NetTest, ManyLinksGoTogetherAndNoOther) {
    std::vector<std::uint32_t> dead;
    for (const char *number : {"1", "2", "3", "4"}) {
        VethSpec one = spec();
        one.host_ifname = std::string("cali") + number;
        one.pod_ifname = std::string("eth") + number;
        dead.push_back(require(create_veth(node_, one)).host.ifindex);
    }
    const std::uint32_t living = dead[2];
    dead[2] = 4000; // is missing
    require(remove_links(node_, dead));
    const auto there = require(list_links(node_));
    EXPECT_EQ(std::ranges::count(there, "veth", &Link::kind), 1);
    EXPECT_TRUE(require(find_link(node_, living)));
    EXPECT_EQ(std::ranges::count(require(list_links(pod_)), "veth", &Link::kind), 1);
    require(remove_links(node_, dead));
    require(remove_links(node_, {}));
}

TEST_F(NetTest, BothEndsInOneNamespaceHaveNoNsid) {
    const VethSpec local{"eth0", "cali0", kPodMac, kHostMac, 0, node_ns_};
    const Veth made = require(create_veth(node_, local));
    EXPECT_EQ(made.host.peer_nsid, std::nullopt);
    EXPECT_EQ(made.host.mtu, 1500U);
    EXPECT_EQ(require(find_link(node_, made.pod_ifindex))->name, "eth0");
}

TEST_F(NetTest, AnEndThatExistsIsNamed) {
    veth();
    VethSpec same_host_veth = spec();
    same_host_veth.pod_ifname = "eth1";
    EXPECT_THAT(create_veth(node_, same_host_veth), is_error(ErrorCode::already_exists, {"host-side veth cali0"}));

    VethSpec same_pod_end = spec();
    same_pod_end.host_ifname = "cali1";
    EXPECT_THAT(create_veth(node_, same_pod_end), is_error(ErrorCode::already_exists, {"container's end eth0"}));
    EXPECT_FALSE(require(find_link(node_, "cali1"))) << "a failed creation left its host-side veth";
}

TEST_F(NetTest, OneChangeSetsEverything) {
    const Veth made = veth();
    const Mac mac{0x02, 0, 0, 0, 0, 0x33};
    require(set_link(
        node_, made.host.ifindex,
        {.up = true, .mtu = 1300, .mac = mac, .alias = "default/pod-a eth0", .addr_gen_mode = AddrGenMode::none}));

    const Link link = require(find_link(node_, made.host.ifindex)).value();
    EXPECT_TRUE(link.up);
    EXPECT_EQ(link.mtu, 1300U);
    EXPECT_EQ(link.mac, mac);
    EXPECT_EQ(link.alias, "default/pod-a eth0");
    EXPECT_EQ(require(read_sysctl({"net", "ipv6", "conf", "cali0", "addr_gen_mode"})), "1");

    require(set_link(node_, made.host.ifindex, {.up = false}));
    EXPECT_FALSE(require(find_link(node_, made.host.ifindex))->up);
}

TEST_F(NetTest, ALinkLocalAddressAppearsWithItsGenerationAlone) {
    const Veth without = veth_up();
    EXPECT_TRUE(require(list_addresses(node_, without.host.ifindex)).empty());
    EXPECT_TRUE(require(list_addresses(pod_, without.pod_ifindex)).empty());
    require(remove_link(node_, without.host.ifindex));

    const Veth made = veth();
    require(set_link(node_, made.host.ifindex, {.up = true}));
    require(set_link(pod_, made.pod_ifindex, {.up = true}));
    std::vector<Address> addresses; // some milliseconds after the carrier
    EXPECT_TRUE(podlane::test::wait_until(
        [&] { return !(addresses = require(list_addresses(pod_, made.pod_ifindex))).empty(); }));
    ASSERT_EQ(addresses.size(), 1U);
    EXPECT_EQ(to_string(addresses[0].prefix.addr), to_string(link_local_from_mac(kPodMac)));
}

TEST_F(NetTest, LinkWithoutIpv6TakesTheGenerationModeInSilence) {
    const Veth made = veth();
    require(set_link(node_, made.host.ifindex, {.mtu = 1000})); // below IPv6's least
    require(set_link(node_, made.host.ifindex, {.up = true, .addr_gen_mode = AddrGenMode::none}));
    EXPECT_TRUE(require(find_link(node_, made.host.ifindex))->up);
}

TEST_F(NetTest, LoopbackComesUp) {
    EXPECT_FALSE(require(find_link(pod_, "lo"))->up);
    require(set_loopback_up(pod_));
    EXPECT_TRUE(require(find_link(pod_, "lo"))->up);
}

TEST_F(NetTest, RemovingOneEndRemovesTheOther) {
    const Veth made = veth();
    EXPECT_TRUE(require(remove_link(node_, made.host.ifindex)));
    EXPECT_FALSE(require(find_link(pod_, "eth0")));
    EXPECT_FALSE(require(remove_link(node_, made.host.ifindex)));

    const Veth second = veth();
    EXPECT_TRUE(require(remove_link(pod_, second.pod_ifindex)));
    EXPECT_FALSE(require(find_link(node_, "cali0")));
}

TEST_F(NetTest, MissingLinkIsAValueWhenLookedForAndAnErrorWhenChanged) {
    EXPECT_FALSE(require(find_link(node_, "nobody0")));
    EXPECT_FALSE(require(find_link(node_, 4711U)));
    EXPECT_THAT(set_link(node_, 4711, {.up = true}), is_error(ErrorCode::missing));
}

TEST_F(NetTest, ErrorsCarryTheKernelsOwnWordsAndTextThatDoesNotFitIsNotSent) {
    const std::uint32_t cali0 = veth().host.ifindex;
    const auto changed = set_link(node_, cali0, {.mtu = 1});
    ASSERT_THAT(changed, is_error({"mtu less than device minimum"}));
    EXPECT_EQ(changed.error().system_errno, EINVAL);
    const auto too_long = set_link(node_, cali0, {.alias = std::string(100000, 'a')});
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().system_errno, EMSGSIZE);
}

// One of several processes, which must never go on with the tests: makes `count` pairs, looks at each, removes each
// second one.
int churn(const Namespace &node, const Namespace &pod, int process, int count) noexcept {
    const Entered inside = require(enter(node));
    Netlink netlink = require(Netlink::open());
    Netlink in_pod = require(Netlink::open_in(pod));
    for (int i = 0; i < count; ++i) {
        const std::string name = std::to_string(process) + "x" + std::to_string(i);
        const Mac mac{0x02, 1, 0, 0, static_cast<std::uint8_t>(process), static_cast<std::uint8_t>(i)};
        auto made = create_veth(netlink, {"eth" + name, "cali" + name, mac, kHostMac, kMtu, pod});
        if (!made || made->host.name != "cali" + name)
            return 1;
        const auto end = find_link(in_pod, made->pod_ifindex);
        if (!end || !*end || (*end)->mac != mac || (*end)->name != "eth" + name)
            return 2;
        if (i % 2 == 1 && !require(remove_link(netlink, made->host.ifindex)))
            return 3;
    }
    return 0;
}

TEST_F(NetTest, ManyProcessesMakeLinksAtOnce) {
    constexpr int kProcesses = 8;
    constexpr int kEach = 25;
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0)
            _exit(churn(node_ns_, pod_ns_, process, kEach));
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    for (int process = 0; process < kProcesses; ++process)
        for (int i = 0; i < kEach; ++i) {
            const std::string name = "cali" + std::to_string(process) + "x" + std::to_string(i);
            EXPECT_EQ(require(find_link(node_, name)).has_value(), i % 2 == 0) << name;
        }
}

std::string temporary_path(const char *name) {
    return testing::TempDir() + "podlane-net-" + std::to_string(getpid()) + "-" + name;
}

TEST(NamespaceTest, OpensAnyPathToANetworkNamespace) {
    const Namespace made = new_namespace();
    const Namespace again = require(Namespace::open("/proc/self/fd/" + std::to_string(made.fd())));
    EXPECT_EQ(again.inode(), made.inode());
    EXPECT_EQ(require(Namespace::open("/proc/" + std::to_string(getpid()) + "/ns/net")), require(Namespace::current()));
}

TEST(NamespaceTest, DistinguishesAMissingPathFromOneThatIsNoNamespace) {
    EXPECT_THAT(Namespace::open(temporary_path("missing")), is_error(ErrorCode::missing));
    EXPECT_FALSE(require(Namespace::find(temporary_path("missing"))));

    const std::string file = temporary_path("file");
    std::ofstream(file) << "left behind by a runtime";
    for (const std::string &path : {file, std::string("/proc/self/ns/mnt"), std::string("/dev/null")})
        EXPECT_THAT(Namespace::open(path), is_error(ErrorCode::invalid_environment, {path}));
    for (const std::string &path : {file, std::string("/proc/self/ns/mnt"), std::string("/dev/null")})
        EXPECT_FALSE(require(Namespace::find(path))) << path;
    std::filesystem::remove(file);
}

TEST(NamespaceTest, EntersAndComesBack) {
    const std::uint64_t home = require(Namespace::current()).inode();
    const Namespace other = new_namespace();
    {
        Entered first = require(enter(other));
        const Entered moved = std::move(first);
        EXPECT_EQ(require(Namespace::current()), other);
    }
    EXPECT_EQ(require(Namespace::current()).inode(), home);
}

TEST(NamespaceTest, WorksInAnotherNamespaceWithoutLeavingItsOwn) {
    const Namespace home = require(Namespace::current());
    const Namespace other = new_namespace();
    std::uint64_t inside = 0;

    const Result<void> done = in_namespace(other, [&]() -> Result<void> {
        inside = require(Namespace::current()).inode();
        return Error{ErrorCode::internal, "of the work"};
    });

    EXPECT_EQ(inside, other.inode());
    EXPECT_EQ(require(Namespace::current()), home);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "of the work");
}

TEST_F(NetTest, SysctlsAreThoseOfTheNamespace) {
    const SysctlPath forwarding{"net", "ipv6", "conf", "all", "forwarding"};
    EXPECT_TRUE(require(write_sysctl_if_different(forwarding, "1")));
    EXPECT_FALSE(require(write_sysctl_if_different(forwarding, "1")));
    EXPECT_EQ(require(read_sysctl(forwarding)), "1");
    const Entered in_pod = require(enter(pod_ns_));
    EXPECT_EQ(require(read_sysctl(forwarding)), "0");
}

// Each namespace whose settings were looked at by /proc adds to the list in which the kernel finds net/ipv4.
TEST_F(NetTest, SysctlsCostTheSameAmongManyNamespaces) {
    const SysctlPath forwarding{"net", "ipv4", "ip_forward"};
    const auto cost_us = [&] {
        double least = 1e6;
        for (int i = 0; i < 5; ++i) {
            const auto began = std::clock();
            EXPECT_TRUE(require(read_sysctl(forwarding)));
            least = std::min(least, static_cast<double>(std::clock() - began) * 1e6 / CLOCKS_PER_SEC);
        }
        return least;
    };
    const double alone = cost_us();
    std::vector<Namespace> others;
    while (others.size() < 900) {
        const Entered entered = require(enter(others.emplace_back(new_namespace())));
        std::string value;
        EXPECT_TRUE(std::getline(std::ifstream("/proc/sys/net/ipv4/ip_forward"), value));
    }
    EXPECT_LE(cost_us(), 30 + 2 * alone);
}

TEST_F(NetTest, SysctlsOfAnInterfaceWithADotInItsNameAreWrittenAndRead) {
    VethSpec dotted = spec();
    dotted.host_ifname = "cali0.7";
    require(create_veth(node_, dotted));
    const SysctlPath rp_filter{"net", "ipv4", "conf", "cali0.7", "rp_filter"};
    require(write_sysctl_if_different(rp_filter, "2"));
    EXPECT_EQ(require(read_sysctl(rp_filter)), "2");
}

TEST_F(NetTest, SysctlPathsDoNotLeaveTheirDirectory) {
    EXPECT_EQ(require(read_sysctl({"net", "ipv4", "no_such_setting"})), std::nullopt);
    EXPECT_EQ(write_sysctl_if_different({"net", "ipv4", "conf", "gone", "rp_filter"}, "0").error().code,
              ErrorCode::missing);
    for (const char *component : {"..", ".", "", "ipv4/conf"})
        EXPECT_FALSE(read_sysctl({"net", component, "ip_forward"})) << component;
}

} // namespace
} // namespace podlane::net::test
