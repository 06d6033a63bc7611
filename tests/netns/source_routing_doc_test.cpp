// SPDX-License-Identifier: MIT
// The configurations of docs/SOURCE-ROUTING.md, read out of it and run.
#include "tests/netns/sources.hpp"

#include <fstream>
#include <sstream>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// The fenced blocks of a kind between this heading and the next.
std::vector<std::string> blocks(const std::string &heading, const std::string &kind) {
    std::ifstream file(std::getenv("PODLANE_SOURCE_DIR") + std::string("/docs/SOURCE-ROUTING.md"));
    std::vector<std::string> found;
    bool here = false;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## "))
            here = line.starts_with("## " + heading);
        else if (here && !inside && line == "```" + kind) {
            inside = true;
            found.emplace_back();
        } else if (line.starts_with("```"))
            inside = false;
        else if (inside)
            found.back() += line + "\n";
    }
    return found;
}

std::vector<Json> conflists(const std::string &heading) {
    std::vector<Json> lists;
    for (const std::string &block : blocks(heading, "json"))
        lists.push_back(Json::parse(block));
    return lists;
}

// What multus hands on of a NetworkAttachmentDefinition.
Json multus_config(const std::string &yaml) {
    const std::string key = "  config: |\n";
    return Json::parse(yaml.substr(yaml.find(key) + key.size()));
}

class SourceRoutingDoc : public testing::Test {
  protected:
    // As long as the link to the router is there.
    void TearDown() override { lab_->del_all(); }
    void start(bool shared = false) {
        lab_.emplace(shared);
        pod_ = lab_->node().container();
    }
    // Only the directories are the test's.
    void add(const std::string &ifname, const Json &list) {
        std::vector<Json> plugins = list.at("plugins");
        for (Json &plugin : plugins) {
            if (plugin.at("type") == "podlane")
                plugin["bpffs"] = lab_->node().bpffs();
            if (plugin.contains("ipam"))
                plugin["ipam"]["dataDir"] = lab_->node().leases();
        }
        lab_->add(pod_, {ifname, list.at("name"), plugins});
    }
    void expect_answers(const std::string &ifname, const net::Namespace &client, bool ipv4) {
        const EchoServer server(pod_->ns(), ipv4, kPort);
        const ip_addr addr = SourceLab::addr(*pod_, ifname, ipv4);
        EXPECT_TRUE(ping(client, to_string(addr), 2)) << ifname << to_string(addr);
        EXPECT_EQ(ask(client, Transport::tcp, {addr, kPort}), 0) << ifname << to_string(addr);
    }
    void expect_both_answer() {
        for (const bool ipv4 : {true, false}) {
            expect_answers("eth0", lab_->client(0).ns(), ipv4);
            expect_answers("net1", lab_->client(1).ns(), ipv4);
        }
        for (const char *ifname : {"eth0", "net1"})
            EXPECT_EQ(lab_->check(pod_, ifname).rc, 0) << lab_->check(pod_, ifname);
    }
    // A LAN behind lan0: its router, and somebody behind that one, for whom net1's answers need source routing.
    void make_lan() {
        router_ = lab_->node().container("router");
        beyond_ = lab_->node().container("beyond");
        lab_->node().run("ip link add lan0 type veth peer name eth0 netns " + router_->path());
        lab_->node().run("ip link set lan0 up");
        (void)router_->run("ip link add inside type veth peer name eth0 netns " + beyond_->path());
        for (const char *command :
             {"ip addr add 192.168.133.1/24 dev eth0", "ip addr add 2001:db8:133::1/64 dev eth0 nodad",
              "ip addr add 203.0.113.201/30 dev inside", "ip addr add 2001:db8:fa::1/64 dev inside nodad",
              "ip link set eth0 up", "ip link set inside up",
              "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"})
            (void)router_->run(command);
        for (const char *command :
             {"ip addr add 203.0.113.202/30 dev eth0", "ip addr add 2001:db8:fa::2/64 dev eth0 nodad",
              "ip link set eth0 up", "ip route add default via 203.0.113.201",
              "ip -6 route add default via 2001:db8:fa::1"})
            (void)beyond_->run(command);
    }

    std::optional<SourceLab> lab_;
    std::shared_ptr<Container> pod_;
    std::shared_ptr<Container> router_;
    std::shared_ptr<Container> beyond_;
};

TEST_F(SourceRoutingDoc, TwoNetworksTwoUplinks) {
    const auto lists = conflists("1.");
    ASSERT_EQ(lists.size(), 2U);
    start();
    add("eth0", lists[0]);
    add("net1", lists[1]);
    expect_both_answer();
}

TEST_F(SourceRoutingDoc, TwoNetworksThatShareASubnet) {
    const auto lists = conflists("2.");
    ASSERT_EQ(lists.size(), 2U);
    start(true);
    add("eth0", lists[0]);
    add("net1", lists[1]);
    expect_both_answer();
}

TEST_F(SourceRoutingDoc, AddressesOfALan) {
    const auto lists = conflists("3.");
    ASSERT_EQ(lists.size(), 1U);
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", lists[0]);
    for (const bool ipv4 : {true, false})
        for (const Container *client : {router_.get(), beyond_.get()})
            expect_answers("net1", client->ns(), ipv4);
}

TEST_F(SourceRoutingDoc, ANetworkAttachmentDefinitionReplacesIpvlanAndSbr) {
    const auto definitions = blocks("3.", "yaml");
    ASSERT_EQ(definitions.size(), 2U);
    Json was = multus_config(definitions[0]);
    const Json is = multus_config(definitions[1]);
    EXPECT_EQ(was.at("plugins").at(0).at("type"), "ipvlan");
    EXPECT_EQ(was.at("plugins").at(1).at("type"), "sbr");
    was["plugins"].erase(1);
    was["plugins"][0]["type"] = "podlane";
    was["plugins"][0]["uplink"] = was["plugins"][0]["master"];
    was["plugins"][0].erase("master");
    EXPECT_EQ(was, is) << "line by line";
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", is);
    for (const Container *client : {router_.get(), beyond_.get()})
        expect_answers("net1", client->ns(), true);
}

TEST_F(SourceRoutingDoc, AnInterfaceMadeByAnotherPlugin) {
    const auto lists = conflists("4.");
    ASSERT_EQ(lists.size(), 2U);
    start();
    add("eth0", lists[0]);
    add("net1", conflists("1.").at(1));
    expect_both_answer();
}

TEST_F(SourceRoutingDoc, AnInterfaceWithoutAHostVeth) {
    start();
    make_lan();
    add("eth0", conflists("1.").at(0));
    add("net1", conflists("4.").at(1));
    for (const Container *client : {router_.get(), beyond_.get()})
        expect_answers("net1", client->ns(), true);
    expect_answers("eth0", lab_->client(0).ns(), true);
    EXPECT_EQ(lab_->check(pod_, "net1").rc, 0) << lab_->check(pod_, "net1");
}

} // namespace
} // namespace podlane::test
