// SPDX-License-Identifier: MIT
// An ADD that fails leaves what others have, and what they change meanwhile.
#include "loader/net/link.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "maps/tables.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/peer_interfaces.hpp"
#include "tests/netns/rollback.hpp"

#include <future>
#include <regex>

namespace podlane::test {
namespace {

using RollbackOthersTest = RollbackTest;

// Another process that waits for the lock does not change what the rollback finds.
TEST_F(RollbackOthersTest, TheLockIsHeldUntilAllIsRolledBack) {
    prepare();
    const std::string directory = node_.dir() + "/fake";
    const std::string path =
        failing_nft(": >" + directory + "/asked\\nwhile [ ! -e " + directory + "/go ]; do sleep 0.05; done\\nexit 1");
    auto container = node_.container();
    auto failing = std::async(std::launch::async, [&] {
        return add(*container, {{"ipMasq", true}}, {{"PATH", path}});
    });
    const auto exists = [&](const std::string &name) { return access((directory + name).c_str(), F_OK) == 0; };
    EXPECT_TRUE(wait_until([&] { return exists("/asked"); }));
    net::Netlink host = require(net::Netlink::open_in(node_.ns()));
    auto waiting = std::async(std::launch::async, [&] {
        const Lock lock = require(Lock::exclusive(node_.bpffs()));
        const auto links = require(net::list_links(host));
        return std::ranges::count_if(links, [](const net::Link &one) { return one.name.starts_with("cali"); });
    });
    struct stat facts {};
    EXPECT_EQ(stat(node_.bpffs().c_str(), &facts), 0);
    const std::string waiter = ":" + std::to_string(facts.st_ino) + " ";
    EXPECT_TRUE(wait_until([&] {
        std::istringstream locks(read_file("/proc/locks"));
        for (std::string line; std::getline(locks, line);)
            if (line.find("-> FLOCK") != std::string::npos && line.find(waiter) != std::string::npos)
                return true;
        return false;
    }));
    run(node_.ns(), {"touch", directory + "/go"});
    EXPECT_EQ(waiting.get(), 0) << "the interface was there while another one had the lock";
    EXPECT_EQ(failing.get().rc, 1);
}

// A limit that was set meanwhile stays: the rollback clears its own flag only.
TEST_F(RollbackOthersTest, OnlyTheFlagThatWasSetIsRolledBack) {
    const Pod made = make();
    const Tables tables = require(Tables::open(node_.bpffs()));
    const endpoint_key key = require(make_endpoint_key(made.container->id(), "eth0"));
    const auto flags = [&] { return require(tables.endpoints.find(key)).value_or(endpoint{}).flags; };
    const std::uint32_t before = flags();
    ASSERT_EQ(before & (INTERFACE_PEERS | INTERFACE_LIMIT_EGRESS), 0U);
    Rollback rollback;
    require(put_source_routes({}, {{key, *require(tables.endpoints.find(key))}}, tables, rollback));
    EXPECT_EQ(flags(), before | INTERFACE_PEERS);
    ASSERT_EQ(node_.podlanectl("bandwidth set --container " + made.container->id() + " --egress 1M").rc, 0);
    const std::uint32_t limited = flags();
    EXPECT_NE(limited & INTERFACE_LIMIT_EGRESS, 0U);
    (void)rollback.run(Error{});
    EXPECT_EQ(flags(), limited & ~std::uint32_t{INTERFACE_PEERS});
}

// Its IPAM plugin was not installed at the DEL, nor at the ADD that followed.
TEST_F(RollbackOthersTest, ALeaseThatWaitsIsNotForgotten) {
    prepare();
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":"198.18.9.77/24"}]})");
    auto container = node_.container();
    ASSERT_THAT(add(*container, with_fake_ipam()), succeeds());
    node_.remove_plugin("fake-ipam");
    EXPECT_EQ(del(*container, with_fake_ipam()).rc, 0);
    EXPECT_EQ(add(*container, with_fake_ipam()).rc, 1);
    EXPECT_EQ(node_.records().size(), 1U);
    put_ipam("");
    EXPECT_EQ(del(*container).rc, 0) << "the record has the configuration of the ADD";
    EXPECT_EQ(asked(), "DEL\n");
    EXPECT_TRUE(node_.records().empty());
}

// The IPAM plugin gave its address to a second one.
TEST_F(RollbackOthersTest, TheUplinkListensForALivingPod) {
    for (const char *link : {"all", "up0"})
        set_sysctl(node_.ns(), std::string("net.ipv4.conf.") + link + ".rp_filter", "0");
    const Json keys = {{"ipMasq", true}, {"uplink", "up0"}, {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}};
    const Pod living = make(keys);
    const auto kept = [&] {
        return node_.run("ip -6 neigh show proxy dev up0") +
               node_.run("nft list table inet podlane-" + node_.config().at("name").get<std::string>());
    };
    const std::string before = kept();
    EXPECT_NE(before.find(living.text6() + " "), std::string::npos) << before;
    for (const std::string family : {"-4", "-6"}) // or the route would be the obstacle
        node_.run("ip " + family + " route flush dev " + living.host_ifname + " proto static");
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":")" + living.text4() + R"(/24"},{"address":")" +
             living.text6() + R"(/64"}]})");
    Json second = with_fake_ipam();
    second.update(keys);
    EXPECT_THAT(add(*node_.container(), second), fails_with(104));
    EXPECT_EQ(kept(), before);
}

// A configuration that was edited, and with which no pod could be made, is not that of the living ones.
TEST_F(RollbackOthersTest, TheNetworkOfLivingPodsIsAsItWas) {
    node_.run("ip link add up1 type veth peer name up2");
    node_.run("ip link set up1 up");
    const Json first = {{"uplinks", {"up0"}},
                        {"clusterCIDRs", {"198.18.0.0/16"}},
                        {"noMasquerade", {"192.0.2.0/24"}},
                        {"ipMasq", true}};
    const Pod living = make(first);
    const auto rules = [&] {
        return node_.run("nft list table inet podlane-" + node_.config().at("name").get<std::string>());
    };
    const auto state = [&] { // an uplink keeps the qdisc
        return std::regex_replace(node_.state(), std::regex("qdisc clsact ffff: dev up1 [^\n]*\n"), "");
    };
    const std::string before = state(), rules_before = rules();
    for (const Json &edited :
         {Json{{"uplinks", {"up1"}}, {"clusterCIDRs", {"10.0.0.0/8"}}, {"ipMasq", true}},
          Json{{"uplinks", {"up0"}},
               {"clusterCIDRs", {"198.18.0.0/16"}},
               {"noMasquerade", {"10.0.0.0/8"}},
               {"ipMasq", true}},
          Json{{"fastPath", "local"}, {"clusterCIDRs", {"10.0.0.0/8", "192.0.2.0/24"}}, {"ipMasq", true}}}) {
        // By then rules and CIDRs are the new ones, and an address is in use.
        put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":")" + living.text4() + R"(/24"}]})");
        Json keys = with_fake_ipam();
        keys.update(edited);
        node_.run("ip route del " + living.text4() + " dev " + living.host_ifname);
        auto container = node_.container();
        EXPECT_THAT(add(*container, keys), fails_with(104, {living.text4()})) << edited;
        node_.run("ip route add " + living.text4() + " dev " + living.host_ifname + " proto static scope link");
        EXPECT_EQ(state(), before) << edited;
        EXPECT_EQ(rules(), rules_before) << edited;
    }
    EXPECT_EQ(check(living, first).rc, 0);
    EXPECT_EQ(node_.podlanectl("uplink list").rc, 0);
}

// The new uplink has no counters yet, and there is no room for them.
TEST_F(RollbackOthersTest, AnUplinkThatCouldNotBeAddedLeavesNoEntry) {
    node_.run("ip link add up1 type veth peer name up2");
    for (const char *link : {"up1", "up2"})
        node_.run(std::string("ip link set ") + link + " up");
    const Pod living = make({{"maxEndpoints", 2}, {"uplinks", {"up0"}}});
    const auto counters = require(open_counters(node_.bpffs(), Access::read_write));
    const std::string before = node_.state();
    std::uint32_t filled = 10000;
    while (counters.update(filled, counter_shares{}))
        ASSERT_LT(++filled, 30000U) << "not full";
    EXPECT_THAT(add(*node_.container(), {{"uplinks", {"up0", "up1"}}}),
                fails_with(102, {PODLANE_MAP_COUNTERS " is full"}));
    while (filled-- > 10000)
        EXPECT_TRUE(require(counters.remove(filled)));
    EXPECT_EQ(node_.state(), before);
    EXPECT_THAT(check(living), succeeds());
}

// A call that was killed leaves an entry without networks.
TEST_F(RollbackOthersTest, AnUplinkWithoutNetworksIsRemoved) {
    node_.run("ip link add up1 type veth peer name up2");
    const Pod living = make({{"uplinks", {"up0"}}});
    const std::string before = node_.state();
    const std::uint32_t left = find(ip_json(node_.ns(), "link"), "ifname", "up1").at("ifindex");
    const Uplinks uplinks = open(&open_uplinks);
    require(uplinks.update(left, uplink{}));
    EXPECT_EQ(node_.podlanectl("uplink sync").rc, 0);
    EXPECT_FALSE(require(uplinks.find(left)));
    EXPECT_EQ(node_.state(), before);
}

// The record of an ADD that fails at the same time is there until its IPAM plugin has released the lease.
TEST_F(RollbackOthersTest, TheNetworkIsAsItWasIfAnotherAddFailsToo) {
    const Pod living = make({{"clusterCIDRs", {"198.18.0.0/16"}}});
    const std::string before = node_.state();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord other = *require(records.find(living.container->id(), "eth0"));
    other.container_id = "fails-too";
    other.created_boottime_ns = ~0ULL >> 1U;
    other.entry->ifindex = 424242; // its links are gone
    ASSERT_TRUE(set_field(other.entry->host_ifname, "cali424242"));
    put_ipam(R"({"cniVersion":"1.0.0","ips":[{"address":")" + living.text4() + R"(/24"}]})");
    Json keys = with_fake_ipam();
    keys["clusterCIDRs"] = {"10.0.0.0/8"};
    node_.run("ip route del " + living.text4() + " dev " + living.host_ifname);
    require(records.write(other));
    EXPECT_THAT(add(*node_.container(), keys), fails_with(104, {living.text4()}));
    require(records.erase("fails-too", "eth0"));
    EXPECT_THAT(node_.podlanectl("network list").out, AllOf(HasSubstr("198.18.0.0/16"), Not(HasSubstr("10.0.0.0/8"))));
    node_.run("ip route add " + living.text4() + " dev " + living.host_ifname + " proto static scope link");
    EXPECT_EQ(node_.state(), before);
}

// nft runs under the lock, which a known network's pods share and a new network's first pod waits for.
TEST_F(RollbackOthersTest, AHangingNftIsKilledAndDelaysNoPodOfAKnownNetwork) {
    const auto network = [](const std::string &name, const std::string &subnet) {
        return Json{{"name", name}, {"ipam", {{"ranges", {{{{"subnet", subnet}}}}}}}};
    };
    const Pod living = make();
    Json slow = network("slow", "198.18.31.0/24");
    slow["ipMasq"] = true;
    const std::string hangs = node_.dir() + "/hangs";
    const std::string path = failing_nft(": >" + hangs + "\\nexec sleep 3600");
    const auto container = node_.container();
    const auto began = std::chrono::steady_clock::now();
    auto hanging = std::async(std::launch::async, [&] { return add(*container, slow, {{"PATH", path}}); });
    EXPECT_TRUE(wait_until([&] { return fs::exists(hangs); }));

    const auto known = node_.container();
    EXPECT_THAT(add(*known), succeeds());
    EXPECT_EQ(hanging.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it hangs still";
    const auto first = node_.container();
    EXPECT_THAT(add(*first, network("other", "198.18.32.0/24")), succeeds());
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15)) << "nft has ten";

    const Reply failed = hanging.get();
    EXPECT_THAT(failed, fails_with(11, {"rules of \"ipMasq\"", "nft did not finish within", "was killed"}));
    EXPECT_THAT(failed.details(), HasSubstr("`nft list ruleset`"));
    EXPECT_THAT(add(*container, slow), succeeds());
}

class IptablesTest : public RollbackOthersTest {
  protected:
    // Each run of iptables does this; the same of the others. They are run if there is a chain of the network.
    Result<void> drop(const std::string &script, const std::vector<std::string> &others = {}) {
        for (const std::string tool : {"iptables", "ip6tables"})
            (void)run(node_.ns(), words(tool + " -t nat -N " + chain()));
        std::vector<std::string> names{"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"};
        names.insert(names.end(), others.begin(), others.end());
        for (const std::string &name : names) {
            std::ofstream(node_.dir() + "/" + name) << "#!/bin/sh\n" << script;
            fs::permissions(node_.dir() + "/" + name, fs::perms::owner_all);
        }
        const std::string before = std::getenv("PATH");
        setenv("PATH", (node_.dir() + ":" + before).c_str(), 1);
        auto dropped =
            net::in_namespace(node_.ns(), [] { return drop_masquerade(ENDPOINT_MASQUERADE_IPTABLES, "pods"); });
        setenv("PATH", before.c_str(), 1);
        return dropped;
    }
    static std::string chain() {
        std::array<char, 32> name{};
        std::snprintf(name.data(), name.size(), "PODLANE-%08x", network_id("pods"));
        return name.data();
    }
};

// The last DEL of a network runs four under the lock.
TEST_F(IptablesTest, SlowOnesHaveTenSecondsTogether) {
    const auto began = std::chrono::steady_clock::now();
    const auto dropped = drop("sleep 4\n[ $0 != ${0%-restore} ] || echo '-N " + chain() + "'\n");
    ASSERT_FALSE(dropped);
    EXPECT_THAT(dropped.error().message, testing::HasSubstr("was killed"));
    EXPECT_THAT(dropped.error().hint, testing::HasSubstr("10 s together"));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(12));
}

// Of the kernel or of iptables: some exit codes and words are also those for a chain or table that is missing.
TEST_F(IptablesTest, AFailureIsNoAnswer) {
    const std::vector<std::pair<std::string, std::string>> failures = {
        {"1", "Failed to initialize nft: Operation not permitted"},
        {"1", "No chain/target/match by that name."},
        {"3", "Table does not exist (do you need to insmod?)"},
        {"4", "Resource temporarily unavailable"}};
    for (const auto &[code, says] : failures) {
        const auto dropped = drop("echo '" + says + "' >&2\nexit " + code);
        ASSERT_FALSE(dropped) << says;
        EXPECT_THAT(dropped.error().message,
                    has_all({"\"ipMasq\"", "iptables exited with code " + code + ": " + says}));
        EXPECT_THAT(dropped.error().hint, HasSubstr("`iptables -t nat -S`"));
    }
}

// Of iptables on nf_tables that could not read the chains.
TEST_F(IptablesTest, AListWithoutTheChainIsNoAnswer) {
    (void)run(node_.ns(), words("iptables-nft -t nat -N " + chain()));
    const auto dropped = drop("echo '-P POSTROUTING ACCEPT'", {"iptables-nft", "ip6tables-nft"});
    ASSERT_FALSE(dropped);
    EXPECT_THAT(dropped.error().message, has_all({"\"ipMasq\"", "does not list chain " + chain()}));
    EXPECT_THAT(dropped.error().hint, HasSubstr("try again"));
}

// As update-alternatives makes it: iptables lists tables of the older one.
TEST_F(IptablesTest, AChainOfTheOtherVariantIsRemoved) {
    (void)run(node_.ns(), words("iptables-nft -t nat -N " + chain()));
    EXPECT_TRUE(drop("echo '-P POSTROUTING ACCEPT'"));
    EXPECT_THAT(node_.run("iptables-nft -t nat -S"), testing::Not(HasSubstr(chain())));
}

TEST_F(IptablesTest, ACrashHasARemedy) {
    const auto dropped = drop("kill -SEGV $$");
    ASSERT_FALSE(dropped);
    EXPECT_THAT(dropped.error().message, testing::HasSubstr("iptables was killed by signal 11 (Segmentation fault)"));
    EXPECT_THAT(dropped.error().hint, has_all({"journalctl -k", "install another build of iptables"}));
}

} // namespace
} // namespace podlane::test
