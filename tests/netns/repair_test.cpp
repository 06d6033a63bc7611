// SPDX-License-Identifier: MIT
// podlanectl repair: whatever was lost or broken on a node comes back, CHECK finds nothing wrong afterwards, and pods
// that were not touched lose no packet.
#include "tests/harness/environment.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/ctl.hpp"

#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "tests/harness/stream.hpp"

#include <net/if.h>

#include <random>

namespace podlane::test {
namespace {

class RepairTest : public CtlTest {
  protected:
    const Json all_ = all_features(100000000000, 4000000000); // a limit that nobody reaches

    RepairTest() {
        for (const char *link : {"all", "lo", "up0"})
            set_sysctl(node_.ns(), std::string("net.ipv4.conf.") + link + ".rp_filter", "0");
        before_ = everything();
    }
    void expect_whole(const Pod &made) const {
        EXPECT_THAT(check(made, all_), succeeds());
        EXPECT_TRUE(ping(made.container->ns(), "203.0.113.1"));
    }
    void expect_nothing_left_after_del(const std::vector<const Pod *> &pods) const {
        for (const Pod *pod : pods) {
            EXPECT_THAT(del(*pod->container, all_), succeeds());
        }
        EXPECT_EQ(everything(), before_);
    }
    static void expect_moves(const Stream &tcp) {
        const std::uint64_t so_far = tcp.received();
        EXPECT_TRUE(wait_until([&] { return tcp.received() > so_far + 100000; })) << "the stream is stuck";
    }
    // Two pods talk without a pause while `break_it` and a repair run.
    void expect_repaired(const std::function<void(const Pod &)> &break_it, const std::string &says) {
        constexpr std::uint16_t kPort = 7000;
        const Pod first = make(all_);
        const Pod second = make(all_);
        const Pod third = make(all_);
        const EchoServer server(second.container->ns(), true, kPort);
        const test::Endpoint where{second.v4, kPort};
        Stream udp(first.container->ns(), Transport::udp, where);
        Stream tcp(first.container->ns(), Transport::tcp, where);
        ASSERT_TRUE(wait_until([&] { return udp.received() > 100 && tcp.received() > 100; }));
        break_it(third);
        EXPECT_THAT(ctl("doctor"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0));
        for (const Pod *pod : {&first, &second, &third})
            expect_whole(*pod);
        expect_moves(tcp);
        EXPECT_EQ(udp.end().lost, 0U);
        EXPECT_EQ(tcp.end().lost, 0U);
        EXPECT_THAT(ctl("repair").out, HasSubstr("nothing found"));
        expect_nothing_left_after_del({&first, &second, &third});
    }

    std::string before_;
};

TEST_F(RepairTest, RestoresWhatWasLost) {
    const std::string live = node_.bpffs() + "/live";
    using Loss = std::function<void(const Pod &)>;
    for (const auto &[what, lose, says] : std::initializer_list<std::tuple<const char *, Loss, const char *>>{
             {"all pins", [&](const Pod &) { fs::remove_all(node_.bpffs()); }, "has lost its entries"},
             {"live", [&](const Pod &) { fs::remove_all(live); }, "has lost its entries"},
             {"a map's pin", [&](const Pod &) { fs::remove(live + "/" PODLANE_MAP_ENDPOINTS); }, "is missing"},
             {"a program's pin", [&](const Pod &) { fs::remove(live + "/" PODLANE_PROGRAM_FROM_POD); }, "is missing"},
             {"rules", [&](const Pod &) { node_.run("nft flush ruleset"); }, "that masquerade"}}) {
        SCOPED_TRACE(what);
        expect_repaired(lose, says);
    }
}

TEST_F(RepairTest, RepairsTheNetworkOfAnotherPod) {
    expect_repaired(
        [&](const Pod &third) {
            for (const std::string command : {"ip route flush dev eth0", "ip -6 route flush dev eth0"})
                third.container->run(command);
            node_.run("ip route flush dev " + third.host_ifname);
            node_.run("ip neigh flush nud permanent dev " + third.host_ifname);
            node_.run("ip link set " + third.host_ifname + " down");
        },
        "is down");
}

TEST_F(RepairTest, RenamesAHostSideVethBack) {
    expect_repaired(
        [&](const Pod &third) {
            node_.run("ip link set " + third.host_ifname + " down");
            node_.run("ip link set " + third.host_ifname + " name renamed");
            node_.run("ip link set renamed up");
        },
        "is called renamed now");
}

// With the programs of before it would go on reading maps that nothing updates.
TEST_F(RepairTest, AnUpgradeReachesARenamedHostSideVeth) {
    const Pod made = make(all_);
    node_.run("ip link set " + made.host_ifname + " down");
    node_.run("ip link set " + made.host_ifname + " name renamed");
    node_.run("ip link set renamed up");
    const auto ids = [&] {
        std::vector<std::uint32_t> all;
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : programs(made.ifindex, hook))
                all.push_back(one.program_id);
        return all;
    };
    const auto before = ids();
    ASSERT_EQ(before.size(), 2U);
    EXPECT_THAT(ctl("upgrade --force"), prints(0));
    const auto now = ids();
    ASSERT_EQ(now.size(), 2U);
    EXPECT_NE(now[0], before[0]);
    EXPECT_NE(now[1], before[1]);
    expect_nothing_left_after_del({&made});
}

// A prefix of several container IDs shows none of them.
TEST_F(RepairTest, RefusesAnAmbiguousName) {
    const Pod first = make();
    const Pod second = make();
    const std::string prefix = first.container->id().substr(0, first.container->id().size() - 1);
    EXPECT_THAT(ctl("endpoint show " + prefix),
                complains(1, {"\"" + prefix + "\" is ambiguous", second.container->id()}));
    EXPECT_EQ(ctl("endpoint show " + first.container->id()).rc, 0);
    for (const Pod *pod : {&first, &second})
        EXPECT_EQ(del(*pod->container).rc, 0);
}

using Deed = std::function<void(const Pod &)>;
class HostileTest : public RepairTest {
  protected:
    void attempt(const std::string &command) const { (void)run(node_.ns(), words(command)); }
    static void in_pod(const Pod &pod, const std::string &command) { (void)run(pod.container->ns(), words(command)); }
    void lose_pin(const char *name) const { fs::remove(pin_path(node_.bpffs(), name)); }
    [[nodiscard]] std::vector<std::pair<std::string, Deed>> hostile_deeds() const;
};

std::vector<std::pair<std::string, Deed>> HostileTest::hostile_deeds() const {
    return {
        {"fq", [this](const Pod &p) { attempt("tc qdisc del dev " + p.host_ifname + " root"); }},
        {"clsact", [this](const Pod &p) { attempt("tc qdisc del dev " + p.host_ifname + " clsact"); }},
        {"nft", [this](const Pod &) { attempt("nft flush ruleset"); }},
        {"iptables", [this](const Pod &) { attempt("iptables -t nat -F"); }},
        {"filter", [this](const Pod &) { attempt("iptables -F"); }},
        {"uplink's clsact", [this](const Pod &) { attempt("tc qdisc del dev up0 clsact"); }},
        {"routes", [this](const Pod &p) { attempt("ip route flush dev " + p.host_ifname); }},
        {"routes6", [this](const Pod &p) { attempt("ip -6 route flush dev " + p.host_ifname + " proto static"); }},
        {"neighbours", [this](const Pod &p) { attempt("ip neigh flush nud permanent dev " + p.host_ifname); }},
        {"down", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " down"); }},
        {"mac", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " address 02:00:00:00:00:99"); }},
        {"mtu", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " mtu 1300"); }},
        {"alias", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " alias mine"); }},
        {"port", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " master br9"); }},
        {"no IPv6", [this](const Pod &p) { attempt("sysctl -qw net.ipv6.conf." + p.host_ifname + ".disable_ipv6=1"); }},
        {"set", [this](const Pod &) { attempt("nft flush set inet podlane-pods pods4"); }},
        {"rename", [this](const Pod &p) { attempt("ip link set " + p.host_ifname + " name r" + p.text4()); }},
        {"forwarding", [this](const Pod &) { set_sysctl(node_.ns(), "net.ipv4.ip_forward", "0"); }},
        {"proxy", [this](const Pod &p) { attempt("sysctl -qw net.ipv4.conf." + p.host_ifname + ".proxy_arp=1"); }},
        {"one forwards",
         [this](const Pod &p) { attempt("sysctl -qw net.ipv4.conf." + p.host_ifname + ".forwarding=0"); }},
        {"conntrack",
         [this](const Pod &) {
             for (const Tracked &one : tracked(node_.ns()))
                 (void)delete_tracked(node_.ns(), one);
         }},
        {"programs",
         [this](const Pod &p) {
             const auto inside = require(net::enter(node_.ns()));
             (void)require(detach(p.ifindex, Hook::ingress));
         }},
        {"uplink",
         [this](const Pod &) {
             const auto inside = require(net::enter(node_.ns()));
             for (const Hook hook : {Hook::ingress, Hook::egress})
                 (void)require(detach(if_nametoindex("up0"), hook));
         }},
        {"pins", [this](const Pod &) { fs::remove_all(live_directory(node_.bpffs())); }},
        {"interfaces", [this](const Pod &) { lose_pin(PODLANE_MAP_INTERFACES); }},
        {"endpoints", [this](const Pod &) { lose_pin(PODLANE_MAP_ENDPOINTS); }},
        {"addresses", [this](const Pod &) { lose_pin(PODLANE_MAP_ADDRESSES); }},
        {"uplinks", [this](const Pod &) { lose_pin(PODLANE_MAP_UPLINKS); }},
        {"program", [this](const Pod &) { lose_pin(PODLANE_PROGRAM_TO_POD); }},
        {"pod routes", [](const Pod &p) { in_pod(p, "ip route flush dev eth0"); }},
        {"pod address", [](const Pod &p) { in_pod(p, "ip addr del " + p.text4() + "/32 dev eth0"); }},
        {"pod addresses", [](const Pod &p) { in_pod(p, "ip addr flush dev eth0"); }},
        {"pod mtu", [](const Pod &p) { in_pod(p, "ip link set eth0 mtu 1000"); }},
        {"pod down", [](const Pod &p) { in_pod(p, "ip link set eth0 down"); }}};
}

// Whatever an administrator does to a node, in any order: one repair, and CHECK finds nothing wrong.
TEST_F(HostileTest, RepairsWhatAHostileAdministratorBreaks) {
    constexpr std::uint16_t kPort = 7000;
    const Pod first = make(all_);
    const Pod second = make(all_);
    const Pod untouched = make(all_), its_server = make(all_);
    const EchoServer server(its_server.container->ns(), true, kPort);
    const test::Endpoint where{its_server.v4, kPort};
    attempt("ip link add br9 type bridge");
    const auto deeds = hostile_deeds();
    std::mt19937_64 random(number_from("PODLANE_SEED", 1));
    const auto pick = [&](std::size_t below) { return random() % below; };
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(number_from("PODLANE_HOSTILE_SECONDS", 30));
    for (int round = 0; std::chrono::steady_clock::now() < end; ++round) {
        std::string done;
        Stream udp(untouched.container->ns(), Transport::udp, where);
        Stream tcp(untouched.container->ns(), Transport::tcp, where);
        ASSERT_TRUE(wait_until([&] { return udp.received() > 100 && tcp.received() > 100; }));
        for (std::size_t i = 0; i < 4; ++i) {
            const auto &[name, deed] = deeds[pick(deeds.size())];
            deed(pick(2) == 0 ? first : second);
            done += name + "; ";
        }
        SCOPED_TRACE("round " + std::to_string(round) + ": " + done);
        EXPECT_THAT(ctl("repair"), prints(0));
        for (const Pod *pod : {&first, &second, &untouched, &its_server})
            expect_whole(*pod);
        expect_moves(tcp);
        if (done.find("forwarding; ") == std::string::npos) { // which concerns all pods
            EXPECT_EQ(udp.end().lost, 0U);
        }
        if (HasFailure())
            break;
    }
    attempt("ip link del br9");
    expect_nothing_left_after_del({&first, &second, &untouched, &its_server});
}

// The DEL of one pod restores those that live on.
TEST_F(RepairTest, DelRestoresTheOthers) {
    const Pod first = make(all_);
    const Pod second = make(all_);
    fs::remove_all(node_.bpffs());
    EXPECT_EQ(del(*second.container, all_).rc, 0);
    expect_whole(first);
    expect_nothing_left_after_del({&first});
}

// One of its addresses is another endpoint's by now: by the other one the pod is reached as before.
TEST_F(RepairTest, AFailedRestoreKeepsThePodConnected) {
    const Pod made = make(all_);
    const Pod other = make(all_);
    const std::string rules = node_.run("nft list ruleset");
    ASSERT_THAT(rules, AllOf(HasSubstr(made.text4()), HasSubstr(made.text6())));
    const Tables tables = require(Tables::open(node_.bpffs()));
    const endpoint_key key = require(make_endpoint_key(made.container->id(), "eth0"));
    const address_key address{network_id("pods"), made.v4};
    ASSERT_TRUE(require(tables.endpoints.remove(key)));
    require(tables.addresses.update(address, *require(tables.addresses.find({address.network, other.v4}))));
    EXPECT_NE(ctl("repair").rc, 0);
    EXPECT_EQ(node_.run("nft list ruleset"), rules);
    EXPECT_TRUE(ping(made.container->ns(), "2001:db8:cafe::1"));

    (void)require(tables.addresses.remove(address));
    EXPECT_THAT(ctl("repair"), prints(0));
    expect_whole(made);
    expect_nothing_left_after_del({&made, &other});
}

// Neither on disk nor in the maps: the finding says what to do, and the runtime's DEL removes the interface.
TEST_F(RepairTest, RefusesAnUnknownInterface) {
    const Pod made = make(all_);
    fs::remove_all(node_.bpffs());
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    EXPECT_THAT(ctl("doctor"), prints(1, {made.host_ifname + " of container " + made.container->id()}));
    EXPECT_EQ(del(*made.container, all_).rc, 0);
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(made.host_ifname)));
}

// Pods that died together with the maps: gc knows them from the disk, and releases their leases.
TEST_F(RepairTest, GcReadsTheDisk) {
    const Pod dead = make(all_);
    const Pod living = make(all_);
    fs::remove_all(node_.bpffs());
    node_.run("ip link del " + dead.host_ifname);
    dead.container->remove_namespace();
    const std::string gc = "gc --bin-dir " + node_.plugins();
    const Output dry = ctl(gc + " --dry-run");
    EXPECT_THAT(dry.out, HasSubstr(dead.container->id()));
    EXPECT_THAT(dry.out, Not(HasSubstr(living.container->id())));
    EXPECT_TRUE(wait_until([&] { return ctl(gc).rc == 0 && node_.leased().size() == 2; }));
    expect_whole(living);
    expect_nothing_left_after_del({&living});
}

// Pods stay connected through the host stack, and nothing of Podlane runs any more.
TEST_F(RepairTest, UninstallReadsTheDisk) {
    const Pod made = make(all_);
    const std::uint32_t uplink = uplink_ifindex();
    fs::remove_all(node_.bpffs());
    ASSERT_FALSE(programs(uplink, Hook::egress).empty());
    const std::string where = " --bin-dir " + node_.plugins() + " --conf-dir " + node_.dir() + "/conf";
    EXPECT_THAT(ctl("uninstall" + where), prints(0));
    for (const std::uint32_t ifindex : {uplink, made.ifindex})
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_TRUE(programs(ifindex, hook).empty()) << ifindex;
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.1"));
    expect_nothing_left_after_del({&made});
}

} // namespace
} // namespace podlane::test
