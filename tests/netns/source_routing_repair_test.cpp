// SPDX-License-Identifier: MIT
// podlanectl repair of a container one of whose interfaces has no host-side veth: the rules and routes in the container
// by which its source routing is done, and the flags of the other interface.
#include "tests/netns/sources.hpp"

#include <algorithm>
#include <set>

namespace podlane::test {
namespace {

// eth0 of the pod is Podlane's, net1 by host-device: what every kernel has.
class SourceRoutingRepair : public testing::Test {
  protected:
    SourceRoutingRepair() {
        const Container &provider = lab_.provider(1);
        node().run("ip link add dev1 type veth peer name port1 netns " + provider.path());
        (void)provider.run("ip addr add 192.0.2.193/27 dev port1");
        (void)provider.run("ip addr add 2001:db8:e1::1/64 dev port1 nodad");
        (void)provider.run("ip link set port1 up");
        lab_.add(pod_, "eth0", 0);
        Json main_plugin = {{"type", "host-device"}, {"device", "dev1"}, {"ipam", lab_.network(1).at("ipam")}};
        const Json range4 = {{"subnet", "192.0.2.192/27"}, {"rangeStart", "192.0.2.200"}, {"gateway", "192.0.2.193"}};
        const Json range6 = {
            {"subnet", "2001:db8:e1::/64"}, {"rangeStart", "2001:db8:e1::20"}, {"gateway", "2001:db8:e1::1"}};
        main_plugin["ipam"]["ranges"] = {Json::array({range4}), Json::array({range6})};
        main_plugin["ipam"]["routes"] = {{{"dst", "198.51.100.0/24"}, {"gw", "192.0.2.193"}},
                                         {{"dst", "2001:db8:e2::/64"}, {"gw", "2001:db8:e1::1"}}};
        result_ = lab_.try_add(pod_, {"net1", "net1", {main_plugin, chained_}}).json;
        if (!wait_until([&] { return pod_->run("ip -6 addr show tentative").empty(); }))
            throw std::runtime_error("an address stays tentative");
    }
    [[nodiscard]] Node &node() { return lab_.node(); }
    // In any order: a rule that was added again comes after those of its priority.
    [[nodiscard]] std::multiset<std::string> routing() const {
        std::multiset<std::string> lines;
        for (const std::string ip : {"ip ", "ip -6 "})
            for (const char *what : {"rule", "route show table all"}) {
                std::istringstream text(pod_->run(ip + what));
                for (std::string line; std::getline(text, line);)
                    lines.insert(ip + line);
            }
        return lines;
    }
    void expect_whole(const std::string &why) const {
        for (const char *ifname : {"eth0", "net1"})
            EXPECT_EQ(lab_.check(pod_, ifname).rc, 0) << why << ": " << lab_.check(pod_, ifname);
    }
    void expect_repaired(const std::string &ifname, const std::string &change) {
        SCOPED_TRACE(ifname + ": " + change);
        const auto whole = routing();
        (void)pod_->run(change);
        ASSERT_NE(routing(), whole) << "the test's own foundation";
        const Reply checked = lab_.check(pod_, ifname);
        EXPECT_EQ(checked.code(), 105) << checked;
        const std::string found = node().podlanectl("doctor").out;
        EXPECT_NE(found.find(checked.message()), std::string::npos) << checked.message() << "\n" << found;
        const std::string repaired = node().podlanectl("repair").out;
        EXPECT_NE(repaired.find(checked.message()), std::string::npos) << repaired;
        EXPECT_EQ(routing(), whole);
        expect_whole("repaired");
    }

    SourceLab lab_;
    const std::string root_ = lab_.node().bpffs();
    const Json chained_ = {{"type", "podlane"}, {"bpffs", root_}, {"firstPacket", "direct"}};
    Json result_; // of net1's list
    std::shared_ptr<Container> pod_ = lab_.node().container();
};

TEST_F(SourceRoutingRepair, EveryRuleAndRouteIsFoundAndRestored) {
    std::size_t rules = 0, routes = 0;
    for (const std::string ip : {"ip ", "ip -6 "})
        for (const Json &rule : Json::parse(pod_->run(ip + "-j rule show priority 20556"))) {
            ++rules;
            const std::string from = rule.at("src"), table = " table " + rule.at("table").get<std::string>();
            const std::string ifname =
                pod_->run("ip addr show net1").find(from + "/") == std::string::npos ? "eth0" : "net1";
            expect_repaired(ifname, ip + "rule del from " + from + " priority 20556");
            for (const Json &route : Json::parse(pod_->run(ip + "-j route show" + table))) {
                if (ifname == "eth0" && !route.contains("gateway"))
                    continue; // no packet needs them: its default route is onlink
                ++routes;
                const std::string to = route.at("dst");
                expect_repaired(ifname, ip + "route del " + to + table);
                if (to == "default")
                    expect_repaired(ifname, ip + "route replace default dev lo" + table);
            }
        }
    EXPECT_EQ(rules, 4U);
    EXPECT_GE(routes, 6U + 2U) << "of net1: its subnet, the lease's route and a default route, for each family";
}

// It is in the main table and in the list's result, and not in the table of this interface.
TEST_F(SourceRoutingRepair, ARouteOfALaterPluginIsNotMissed) {
    (void)pod_->run("ip route add 198.51.101.0/24 via 192.0.2.193 dev net1");
    Json config = chained_;
    config.update({{"cniVersion", "1.0.0"}, {"name", "net1"}, {"prevResult", result_}});
    config["prevResult"]["routes"].push_back({{"dst", "198.51.101.0/24"}, {"gw", "192.0.2.193"}});
    const Reply reply = node().cni("CHECK", config, *pod_, {{"CNI_IFNAME", "net1"}});
    EXPECT_EQ(reply.rc, 0) << reply;
}

// Those who set limits change flags of the same entries under the exclusive lock.
TEST_F(SourceRoutingRepair, FlagsOfTheOtherInterfaceChangeUnderTheLock) {
    std::filesystem::remove_all(root_);
    const std::string trace = node().dir() + "/trace";
    std::vector<std::string> argv =
        words("strace -f -qq -y -e trace=flock,close,bpf -o " + trace + " " + std::getenv("PODLANECTL_BIN"));
    for (const std::string &word : words("repair --bpffs " + root_))
        argv.push_back(word);
    const Output done = run(node().ns(), argv);
    EXPECT_NE(done.out.find(", net1 has lost its entries"), std::string::npos) << done.out << done.err;
    expect_whole("restored");
    const std::string of_root = "<" + root_ + ">";
    bool is_locked = false;
    std::size_t changes = 0;
    std::istringstream calls(read_file(trace));
    for (std::string line; std::getline(calls, line);) {
        const bool is_lock = line.find(of_root) != std::string::npos;
        if (is_lock && line.find(" flock(") != std::string::npos)
            is_locked = line.find("LOCK_EX") != std::string::npos;
        else if (is_lock && line.find(" close(") != std::string::npos)
            is_locked = false;
        if (line.find("BPF_MAP_UPDATE_ELEM") == std::string::npos || line.find("BPF_EXIST") == std::string::npos)
            continue;
        ++changes;
        EXPECT_TRUE(is_locked) << line;
    }
    EXPECT_GE(changes, 2U) << "of eth0's entries in endpoints_v1 and interfaces_v1";
}

} // namespace
} // namespace podlane::test
