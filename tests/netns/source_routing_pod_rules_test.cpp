// SPDX-License-Identifier: MIT
// Podlane behind a main plugin whose interface has no host-side veth, or is not routed by the node: rules in the
// container do the source routing.
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "tests/netns/pod_rules.hpp"

#include <net/if.h>
#include <sys/stat.h>

#include <future>

namespace podlane::test {
namespace {

TEST_P(PodRules, AnswersLeaveByTheNetworkThatWasAddressed) {
    add_pod();
    const std::vector<const char *> ports = {"eth0", has_own_link() ? "port1" : "eth0"};
    for (const bool ipv4 : {true, false})
        for (const int number : {0, 1}) {
            const Wire right(lab_.provider(number).ns(), ports.at(static_cast<std::size_t>(number)));
            const Wire wrong(lab_.provider(1 - number).ns(), ports.at(static_cast<std::size_t>(1 - number)));
            const std::string ifname = number == 0 ? "eth0" : "net1";
            EXPECT_TRUE(answers(ifname, number, ipv4)) << ifname << (ipv4 ? " v4" : " v6");
            EXPECT_TRUE(ping(lab_.client(number).ns(), to_string(addr(ifname, ipv4)), 2)) << ifname;
            const Fd server = open_socket(pod_->ns(), Transport::udp, ipv4, {addr(ifname, ipv4), kPort});
            const Endpoint client{ip(SourceLab::client_addr(number, ipv4)), 40000};
            const Fd asker = open_socket(lab_.client(number).ns(), Transport::udp, ipv4, client);
            ASSERT_EQ(connect_to(asker, {addr(ifname, ipv4), kPort}), 0);
            ASSERT_EQ(send_text(asker, "question"), 0);
            ASSERT_EQ(receive(server).text, "question");
            ASSERT_EQ(connect_to(server, client), 0);
            ASSERT_EQ(send_text(server, "answer"), 0);
            EXPECT_EQ(receive(asker).text, "answer") << ifname;
            EXPECT_GT(frames_from(right, addr(ifname, ipv4)), 0U) << ifname;
            EXPECT_EQ(frames_from(wrong, addr(ifname, ipv4)), 0U) << ifname;
        }
}

// The test's own foundation: what `sbr` is there for.
TEST_P(PodRules, WithoutPodlaneBehindItAnswersAreLost) {
    pod_ = node().container();
    lab_.add(pod_, "eth0", 0);
    lab_.add(pod_, {"net1", "net1", {main_plugin()}});
    settle();
    const std::uint32_t first = SourceLab::host_veth(*pod_, "eth0");
    for (const bool ipv4 : {true, false}) {
        const std::uint64_t dropped = lab_.count(first, REASON_DROP_SOURCE_ADDRESS);
        EXPECT_FALSE(ping_once(ipv4));
        EXPECT_TRUE(wait_until([&] { return lab_.count(first, REASON_DROP_SOURCE_ADDRESS) > dropped; }));
    }
}

// A host on net1's link that asks eth0 gets no answer by net1, though the main table has that link there.
TEST_P(PodRules, TheOtherInterfaceKeepsToItsOwnNetwork) {
    add_pod();
    const Container &asker = lab_.provider(1);
    const std::uint32_t ifindex = SourceLab::host_veth(*pod_, "eth0");
    const auto inside = require(net::enter(node().ns()));
    std::array<char, IF_NAMESIZE> name{};
    ASSERT_NE(if_indextoname(ifindex, name.data()), nullptr);
    const Wire host_veth(node().ns(), name.data());
    for (const bool ipv4 : {true, false}) {
        (void)asker.run("ip route replace " + SourceLab::range(0, ipv4, false) + " via " +
                        SourceLab::on_link(1, 2, ipv4));
        const std::string local =
            has_own_link() ? (ipv4 ? "192.0.2.193" : "2001:db8:e1::1") : SourceLab::on_link(1, 1, ipv4);
        std::size_t answers = 0;
        EXPECT_TRUE(wait_until([&] {
            (void)run(asker.ns(), words("ping -c 2 -i 0.2 -W 1 -I " + local + " " + to_string(addr("eth0", ipv4))));
            answers += frames_from(host_veth, addr("eth0", ipv4));
            return answers >= 2;
        })) << (ipv4 ? "v4" : "v6");
    }
}

TEST_P(PodRules, CheckNoticesWhatIsMissing) {
    add_pod();
    EXPECT_EQ(lab_.check(pod_, "eth0").rc, 0) << lab_.check(pod_, "eth0");
    ASSERT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
    for (const bool ipv4 : {true, false}) {
        const std::string ip = ipv4 ? "ip" : "ip -6";
        const std::string from = " from " + to_string(addr("net1", ipv4)) + " priority 20556";
        const Json rules = Json::parse(pod_->run(ip + " -j rule show priority 20556"));
        std::string table;
        for (const Json &rule : rules)
            if (rule.at("src") == to_string(addr("net1", ipv4)))
                table = rule.at("table");
        (void)pod_->run(ip + " rule del" + from);
        EXPECT_EQ(lab_.check(pod_, "net1").code(), 105) << lab_.check(pod_, "net1");
        EXPECT_FALSE(ping_once(ipv4)) << "the test's own foundation";
        (void)pod_->run(ip + " rule add" + from + " lookup " + table);
        EXPECT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
        const std::string by = pod_->run(ip + " route show default table " + table);
        (void)pod_->run(ip + " route del default table " + table);
        EXPECT_EQ(lab_.check(pod_, "net1").code(), 105) << lab_.check(pod_, "net1");
        (void)pod_->run(ip + " route add " + by.substr(0, by.find(" proto")) + " dev net1 onlink table " + table);
        EXPECT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
    }
}

// It is another plugin's, and no repair touches it.
TEST_P(NoHostVeth, DoctorSaysHowToSetTheInterfaceUp) {
    add_pod();
    (void)pod_->run("ip link set net1 down");
    for (const std::string command : {"doctor", "repair"}) {
        const Output output = node().podlanectl(command);
        EXPECT_EQ(output.rc, 1) << command;
        EXPECT_THAT(output.out, testing::HasSubstr("--net=" + pod_->path() + " ip link set net1 up")) << command;
    }
}

TEST_P(NoHostVeth, ThePlanHasRulesAlone) {
    pod_ = node().container();
    lab_.add(pod_, "eth0", 0);
    lab_.add(pod_, net1({{"log", {{"file", log_file()}, {"level", "debug"}}}}));
    const std::string mark = ": plan: ", text = logged();
    const std::size_t at = text.find(mark);
    ASSERT_NE(at, std::string::npos) << text;
    const Json plan = Json::parse(text.substr(at + mark.size(), text.find('\n', at) - at - mark.size()));
    EXPECT_EQ(plan.at("links").at("container").at("name"), "net1");
    EXPECT_EQ(plan.at("container").at("rulesFrom"),
              Json({to_string(addr("net1", true)), to_string(addr("net1", false))}));
    EXPECT_EQ(plan.at("entries"), Json({{PODLANE_MAP_ENDPOINTS, 1}}));
    for (const char *what : {"programs", "network", "nat", "lease"})
        EXPECT_FALSE(plan.contains(what)) << what;
    EXPECT_FALSE(plan.at("links").contains("host"));
}

TEST_P(PodRules, DelLeavesTheContainerAsItWas) {
    add_pod();
    EXPECT_NE(routing(), before_);
    const Chain podlane_alone = net1_alone();
    for (int time = 0; time < 2; ++time)
        EXPECT_EQ(podlane_alone.del(*pod_, true).rc, 0);
    EXPECT_EQ(routing(), before_) << "while the interface is still there";
    EXPECT_EQ(pod_->run("ip route show table all dev net1").find(" table 13"), std::string::npos);
    EXPECT_EQ(lab_.check(pod_, "eth0").rc, 0) << lab_.check(pod_, "eth0");
    EXPECT_EQ(lab_.del(pod_, "net1").rc, 0);
    EXPECT_TRUE(answers("eth0", 0, true) && answers("eth0", 0, false));
}

TEST_P(NoHostVeth, DelWithoutANamespaceIsClean) {
    add_pod();
    pod_->remove_namespace();
    lab_.forget(pod_, "net1"); // the reference host-device fails without a namespace
    const Chain podlane_alone = net1_alone();
    EXPECT_EQ(podlane_alone.del(*pod_, true).rc, 0);
    EXPECT_EQ(podlane_alone.del(*pod_).rc, 0);
    const auto endpoints = require(require(open_endpoints(node().bpffs(), Access::read_only)).entries());
    EXPECT_EQ(endpoints.size(), 1U);
    pod_.reset();
}

// As another runtime sends it, whose list has none of these pods.
TEST_P(NoHostVeth, AGcOfAnotherRootLeavesTheRules) {
    add_pod();
    const std::string by_rules = routing();
    Json other = podlane({{"cniVersion", "1.1.0"}, {"name", "net1"}, {"cni.dev/valid-attachments", Json::array()}});
    other["bpffs"] = node().bpffs() + "-other";
    EXPECT_EQ(node().cni("podlane", "GC", other).rc, 0);
    EXPECT_EQ(routing(), by_rules);
    EXPECT_EQ(lab_.check(pod_, "net1").rc, 0);
}

// DEL goes by what ADD put, whatever the interface has by now.
TEST_P(PodRules, ARenumberedInterfaceLeaksNothing) {
    add_pod();
    for (const bool ipv4 : {true, false}) {
        const std::string ip = ipv4 ? "ip" : "ip -6";
        (void)pod_->run(ip + " addr flush dev net1 scope global");
        (void)pod_->run(ip + " addr add " + (ipv4 ? "192.0.2.99/26" : "2001:db8:f1::99/64") + " dev net1");
    }
    EXPECT_NE(lab_.check(pod_, "net1").rc, 0);
    const Chain podlane_alone = net1_alone();
    EXPECT_EQ(podlane_alone.del(*pod_, true).rc, 0);
    EXPECT_EQ(routing(), before_);
    EXPECT_EQ(pod_->run("ip route show table all dev net1").find(" table 13"), std::string::npos);
}

// The interface without a host-side veth comes first; both are podlane's.
TEST_P(PodRules, AsTheFirstInterfaceItWorksAsWell) {
    pod_ = node().container();
    Attach first = net1();
    first.plugins[0]["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
    lab_.add(pod_, first);
    lab_.add(pod_, "eth0", 0);
    settle();
    for (const bool ipv4 : {true, false})
        EXPECT_TRUE(answers("eth0", 0, ipv4) && answers("net1", 1, ipv4)) << ipv4;
    for (const char *ifname : {"eth0", "net1"})
        EXPECT_EQ(lab_.check(pod_, ifname).rc, 0) << lab_.check(pod_, ifname);
    EXPECT_THAT(lab_.del(pod_, "eth0"), succeeds());
    EXPECT_TRUE(answers("net1", 1, true));
    EXPECT_EQ(lab_.check(pod_, "net1").rc, 0) << lab_.check(pod_, "net1");
}

TEST_P(NoHostVeth, ItsModeIsInTheLogAndShown) {
    add_pod();
    EXPECT_THAT(logged(), has_all({"interface net1", "source routing is done by rules in the container"}));
    const auto ctl = [&](const std::string &command) { return node().podlanectl_json(command); };
    bool shown = false;
    for (const Json &one : ctl("source list " + pod_->id()))
        shown |= one.at("interface") == "net1" && one.at("uplink") == "by rule in the container";
    EXPECT_TRUE(shown);
    const Json way =
        ctl("path show " + pod_->id() + " --source " + to_string(addr("net1", true)) + " --destination 203.0.113.9");
    EXPECT_TRUE(std::ranges::any_of(way, [](const Json &one) { return one.at("way") == "container"; })) << way;
    for (const Json &finding : ctl("status").at("findings"))
        EXPECT_EQ(finding.dump().find("is gone"), std::string::npos) << finding;
    for (const Json &finding : ctl("doctor " + pod_->id()))
        EXPECT_NE(finding.at("severity"), "wrong") << finding;
    EXPECT_EQ(ctl("gc --dry-run").size(), 0U);
}

// The rules are in the container; the flag by which DEL removes eth0's is in the maps alone.
TEST_P(NoHostVeth, LostEntriesAreRestored) {
    add_pod();
    const std::string by_rules = routing(), root = node().bpffs();
    const auto find = [&](const char *ifname) {
        return require(
            require(open_endpoints(root, Access::read_only)).find(require(make_endpoint_key(pod_->id(), ifname))));
    };
    const auto other = node().container();
    const std::string runtime = " --conf-dir " + node().dir() + " --bin-dir " + node().dir();
    for (const std::string lost : {"by a repair", "by an ADD", "by a repair after an uninstall"}) {
        SCOPED_TRACE(lost);
        if (lost.ends_with("uninstall")) {
            EXPECT_EQ(node().podlanectl("uninstall" + runtime).rc, 0);
        } else {
            std::filesystem::remove_all(root);
        }
        const std::string found = node().podlanectl("doctor").out;
        EXPECT_NE(found.find(pod_->id() + ", net1 has "), std::string::npos) << found;
        if (lost == "by an ADD") {
            lab_.add(other, "eth0", 2);
        } else {
            EXPECT_THAT(node().podlanectl("repair").out, HasSubstr(pod_->id() + ", net1 has "));
        }
        ASSERT_TRUE(find("net1"));
        EXPECT_NE(find("eth0").value().flags & INTERFACE_POD_RULES, 0U);
        for (const char *ifname : {"eth0", "net1"})
            EXPECT_EQ(lab_.check(pod_, ifname).rc, 0) << lab_.check(pod_, ifname);
        EXPECT_EQ(routing(), by_rules);
    }
    const Chain podlane_alone = net1_alone();
    EXPECT_EQ(podlane_alone.del(*pod_, true).rc, 0);
    EXPECT_EQ(routing(), before_);
}

TEST_P(NoHostVeth, WhatNeedsProgramsIsRefused) {
    pod_ = node().container();
    lab_.add(pod_, "eth0", 0);
    const Json limits = {{"ingressRate", 1000000}, {"ingressBurst", 1000000}};
    for (const Json &keys : {limits, Json{{"ipMasq", true}}, Json{{"uplink", "up1"}}, Json{{"table", 100}},
                             Json{{"sourceRouting", false}}}) {
        const Attach wanted = net1(keys);
        Chain chain(node(), wanted.plugins, "1.0.0", "net1");
        chain.variables = {{"CNI_IFNAME", "net1"}};
        const Reply reply = chain.add(*pod_);
        EXPECT_EQ(reply.code(), 2) << keys << reply;
        EXPECT_NE(reply.message().find("no host-side veth"), std::string::npos) << reply;
        EXPECT_EQ(chain.del(*pod_, true).rc, 0);
        EXPECT_EQ(routing().find("20556"), std::string::npos);
    }
}

bool waits_for_lock(const std::string &root) {
    struct stat facts {};
    EXPECT_EQ(stat(root.c_str(), &facts), 0);
    const std::string inode = ":" + std::to_string(facts.st_ino) + " ";
    std::istringstream locks(read_file("/proc/locks"));
    for (std::string line; std::getline(locks, line);)
        if (line.find("-> FLOCK") != std::string::npos && line.find(inode) != std::string::npos)
            return true;
    return false;
}

// The ADD has opened the maps when the pins are replaced, and waits for the lock: what it writes would be lost.
TEST_P(NoHostVeth, AnUpgradeBeforeTheLockIsNoticed) {
    pod_ = node().container();
    lab_.add(pod_, "eth0", 0);
    const Attach wanted = net1();
    Chain chain(node(), wanted.plugins, "1.0.0", "net1");
    chain.variables = {{"CNI_IFNAME", "net1"}};
    const std::string root = node().bpffs();
    std::future<Reply> adding;
    {
        const net::Entered inside = require(net::enter(node().ns()));
        const Lock lock = require(Lock::exclusive(root));
        adding = std::async(std::launch::async, [&] { return chain.add(*pod_); });
        EXPECT_TRUE(wait_until([&] { return waits_for_lock(root); }));
        const std::string loading = require(make_loading_directory(root));
        require(load_into(loading, {}, live_directory(root)));
        require(publish(root, loading));
    }
    const Reply reply = adding.get();
    EXPECT_EQ(reply.code(), 11) << reply;
    EXPECT_NE(reply.message().find("upgraded just now"), std::string::npos) << reply;
    EXPECT_EQ(chain.del(*pod_, true).rc, 0);
    EXPECT_EQ(require(require(open_endpoints(root, Access::read_only)).entries()).size(), 1U);
    EXPECT_EQ(routing().find("20556"), std::string::npos);
    EXPECT_EQ(chain.add(*pod_).rc, 0) << "the runtime's next attempt";
    EXPECT_EQ(chain.del(*pod_).rc, 0);
}

INSTANTIATE_TEST_SUITE_P(Plugins, PodRules, testing::Values("macvlan", "ipvlan", "host-device", "bridge"), plugin_name);
INSTANTIATE_TEST_SUITE_P(Plugins, NoHostVeth, without_host_veth(), plugin_name);

} // namespace
} // namespace podlane::test
