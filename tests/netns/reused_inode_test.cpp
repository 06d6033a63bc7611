// SPDX-License-Identifier: MIT
// A pod that died without a DEL, and a new container whose namespace got its inode number: gc, uninstall, repair, ADD
// and DEL take the one for dead, and leave the other alone.
#include "loader/record.hpp"
#include "tests/netns/ctl_node.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// A container at this path whose namespace has this inode number. None if the kernel gives the number to no other one,
// which it may give to another program's.
std::shared_ptr<Container> make_again(const std::string &path, std::uint64_t inode, const std::string &id = "new") {
    constexpr std::size_t kMost = 100;
    std::vector<net::Namespace> others;
    std::shared_ptr<Container> made;
    wait_until([&] { // the number is free a moment after the last file of the namespace is gone
        made.reset();
        made = std::make_shared<Container>(id, path);
        if (made->ns().inode() != inode)
            others.push_back(require(net::Namespace::open(path)));
        return made->ns().inode() == inode || others.size() == kMost;
    });
    if (made->ns().inode() == inode)
        return made;
    std::cerr << "inode number " << inode << " was not used again by " << others.size() << " namespaces\n";
    return nullptr;
}

// As a version without the cookie has written it, and a kernel without cookies still makes it write.
void forget_cookie(const AttachmentRecords &records, const std::string &id, const std::string &ifname) {
    AttachmentRecord record = require(records.find(id, ifname)).value();
    EXPECT_NE(record.netns_cookie, 0U);
    record.netns_cookie = 0;
    require(records.write(record));
}

class ReusedInodeTest : public NodeTest {
  protected:
    // A dead pod, and a container with its inode number.
    [[nodiscard]] bool make_dead() {
        dead_ = make({{"ipMasq", true}});
        const std::uint64_t inode = dead_.ns().inode();
        lose_namespace(dead_);
        again_ = make_again(node_.dir() + "/again", inode);
        return again_ != nullptr;
    }
    Pod dead_;
    std::shared_ptr<Container> again_;
};

TEST_F(ReusedInodeTest, GcRemovesTheDeadPod) {
    const std::string before = everything();
    for (const bool lost : {false, true}) {
        if (!make_dead())
            GTEST_SKIP() << "its inode number was not used again";
        if (lost)
            fs::remove_all(node_.bpffs());
        const Json done = gc();
        ASSERT_EQ(done.size(), 1U) << done.dump(1);
        EXPECT_EQ(done[0].at("result"), "removed") << (lost ? "known from the record" : "known from the maps");
        EXPECT_EQ(node_.leased(), std::vector<std::string>{});
        EXPECT_EQ(node_.records(), std::vector<std::string>{});
        again_.reset();
    }
    EXPECT_THAT(everything(), Not(HasSubstr("podlane-pods"))) << before;
}

TEST_F(ReusedInodeTest, UninstallRemovesTheDeadPod) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    EXPECT_THAT(uninstall(), prints(0, {"removed what was left of container " + dead_.container->id()}));
    EXPECT_EQ(node_.leased(), std::vector<std::string>{});
    EXPECT_EQ(node_.run("nft list tables"), "");
}

TEST_F(ReusedInodeTest, WithoutACookieTheNumberDecides) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    forget_cookie({kStateDirectory, node_.bpffs()}, dead_.container->id(), "eth0");
    EXPECT_EQ(gc().at(0).at("result"), "kept");
    again_.reset();
    EXPECT_TRUE(wait_until([&] { return gc("--dry-run").at(0).at("result") == "would-be-removed"; }));
    EXPECT_EQ(gc().at(0).at("result"), "removed");
}

// As podman starts one again: its interface has the same number, too.
TEST_F(ReusedInodeTest, AnAddOfTheSameContainerIsNoSecondOne) {
    Chain chain(node_, {{{"type", "ptp"}, {"ipam", node_.ipam()}}, node_.config({{"ipam", nullptr}})});
    const auto container = node_.container();
    dead_ = look_at(container, succeeded(chain.add(*container)).json);
    const std::uint64_t inode = dead_.ns().inode();
    const Json ifindex = pod_link(*container).at("ifindex");
    lose_namespace(dead_);
    fs::remove_all(node_.leases()); // host-local gives none to a container that has one
    again_ = make_again(node_.dir() + "/again", inode, container->id());
    if (!again_)
        GTEST_SKIP() << "its inode number was not used again";
    EXPECT_THAT(chain.add(*again_), succeeds());
    EXPECT_EQ(pod_link(*again_).at("ifindex"), ifindex) << "the test's own foundation";
    EXPECT_THAT(chain.check(*again_), succeeds());
    EXPECT_THAT(chain.del(*again_), succeeds());
}

TEST_F(ReusedInodeTest, ALimitIsPutIntoNoOtherContainer) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    const Json known = ctl_json("endpoint list").at(0);
    again_->run("ip link add eth0 index " + known.at("pod_ifindex").dump() + " type veth peer name eth1 index 1000");
    again_->run("ip link set eth0 up");
    const std::string before = again_->run("tc qdisc show");
    for (const char *change : {"set --egress 10M", "clear"}) {
        (void)ctl(std::string("bandwidth ") + change + " --container " + dead_.container->id());
        EXPECT_EQ(again_->run("tc qdisc show"), before) << change;
    }
}

// eth0 of the dead pod was Podlane's, net1 by host-device, which leaves no host-side veth.
class ReusedContainerTest : public testing::Test {
  protected:
    [[nodiscard]] Node &node() { return lab_.node(); }
    [[nodiscard]] bool make_dead() {
        const auto pod = node().container();
        node().run("ip link add dev1 type veth peer name port1 netns " + lab_.provider(1).path());
        lab_.add(pod, "eth0", 0);
        Json device = {{"type", "host-device"}, {"device", "dev1"}, {"ipam", node().ipam()}};
        const Json range = {{"subnet", "192.0.2.192/27"}, {"gateway", "192.0.2.193"}};
        device["ipam"]["ranges"] = Json::array({Json::array({range})});
        lab_.add(pod, {"net1", "net1", {device, podlane_}});
        id_ = pod->id();
        const std::string addr = to_string(SourceLab::addr(*pod, "net1", true));
        const Json rules = Json::parse(pod->run("ip -j rule show priority 20556"));
        const std::string table = find(rules, "src", addr).at("table");
        const std::uint64_t inode = pod->ns().inode();
        const Json link = Json::parse(pod->run("ip -j link show net1")).at(0);
        lab_.forget(pod, "eth0");
        lab_.forget(pod, "net1");
        pod->remove_namespace();
        foreign_ = make_again(pod->path(), inode);
        if (!foreign_)
            return false;
        // Rules for the dead pod's addresses would find an interface of the same number.
        foreign_->run("ip link add net1 index " + link.at("ifindex").dump() + " type veth peer name net2");
        for (const char *command : {"ip link set lo up", "ip link set net2 up", "ip link set net1 up",
                                    "ip addr add 192.0.2.200/27 dev net1", "ip route add default via 192.0.2.193"})
            foreign_->run(command);
        rule_ = "from " + addr + " priority 20556 lookup " + table;
        return true;
    }
    [[nodiscard]] std::string routing() const {
        return foreign_->run("ip rule") + foreign_->run("ip -6 rule") + foreign_->run("ip -4 route show table all");
    }

    SourceLab lab_;
    const Json podlane_ = {{"type", "podlane"}, {"bpffs", lab_.node().bpffs()}};
    std::string id_;
    std::string rule_; // of the dead pod's net1
    std::shared_ptr<Container> foreign_;
};

TEST_F(ReusedContainerTest, NothingIsChangedInIt) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    const std::string before = routing();
    (void)node().podlanectl("repair");
    EXPECT_EQ(routing(), before) << "repair";
    foreign_->run("ip rule add " + rule_);
    const std::string with_rule = routing();
    for (const Json &row : node().podlanectl_json("gc --bin-dir " + node().plugins()))
        EXPECT_EQ(row.at("result"), "removed") << row;
    EXPECT_EQ(routing(), with_rule) << "the DEL of gc";
    EXPECT_EQ(node().records(), std::vector<std::string>{});
}

TEST_F(ReusedContainerTest, ARestoreOfLostEntriesChangesNothingInIt) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    const std::string before = routing();
    fs::remove_all(node().bpffs());
    EXPECT_THAT(node().podlanectl("repair").out, Not(HasSubstr(id_ + ", net1")));
    EXPECT_EQ(routing(), before);
}

// Also without a cookie, if its interface is another one.
TEST_F(ReusedContainerTest, ARepairIsRefusedByTheMac) {
    if (!make_dead())
        GTEST_SKIP() << "its inode number was not used again";
    forget_cookie({kStateDirectory, node().bpffs()}, id_, "net1");
    const std::string before = routing();
    EXPECT_THAT(node().podlanectl("repair").out,
                HasSubstr("interface net1 of the container is not the one that ADD saw"));
    EXPECT_EQ(routing(), before);
}

} // namespace
} // namespace podlane::test
