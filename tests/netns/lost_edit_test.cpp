// SPDX-License-Identifier: MIT
// A configuration that was edited while pods live: DEL and GC go by what the ADD was called with, and what others need
// stays.
#include "loader/record.hpp"
#include "plugin/endpoint.hpp"
#include "tests/netns/verbs.hpp"

#include <sys/mount.h>

#include <optional>

namespace podlane::test {
namespace {

class LostEditTest : public VerbsTest {
  protected:
    // host-local, which fails to release what is in the former directory while the file `asleep` is there.
    void put_sleepy_plugin() const {
        node_.put_plugin("host-local",
                         "#!/bin/sh\nconfig=$(cat)\ncase $CNI_COMMAND$config in DEL*former*)\n[ ! -e " + asleep_ +
                             " ] || { echo '{\"code\":11,\"msg\":\"the disk sleeps\"}'; exit 1; }" +
                             ";; esac\nprintf %s \"$config\" | exec " + variable("CNI_PLUGINS") + "/host-local\n");
    }
    [[nodiscard]] Json leases_in(const std::string &directory) const {
        Json ipam = node_.ipam();
        ipam["dataDir"] = node_.dir() + "/" + directory;
        return {{"ipam", ipam}};
    }
    [[nodiscard]] std::size_t leased() const {
        std::size_t count = 0;
        for (const auto &entry : fs::recursive_directory_iterator(node_.dir() + "/former"))
            count += entry.path().filename().string().starts_with("198.18.") ? 1 : 0;
        return count;
    }

    const std::string asleep_ = node_.dir() + "/asleep";
    const std::string before_ = everything();
};

// The plugin of the edited configuration knows nothing of the lease, and says that all is well.
TEST_F(LostEditTest, ALeaseWaitsForThePluginThatHasIt) {
    put_sleepy_plugin();
    for (const std::string next : {"DEL", "GC"}) {
        SCOPED_TRACE(next);
        const Pod made = make(leases_in("former"));
        ASSERT_EQ(leased(), 1U);
        std::ofstream(asleep_).close();
        const Reply reply = del(*made.container, leases_in("edited"));
        EXPECT_THAT(reply, succeeds());
        EXPECT_THAT(reply.err, HasSubstr("the disk sleeps"));
        EXPECT_EQ(leased(), 1U);
        fs::remove(asleep_);
        EXPECT_THAT(next == "GC" ? gc({}, leases_in("edited")) : del(*made.container, leases_in("edited")), succeeds());
        EXPECT_EQ(leased(), 0U);
        EXPECT_TRUE(node_.records().empty());
        EXPECT_EQ(everything(), before_);
    }
}

// A killed ADD has entered its network before its endpoint is on record. The network was renamed since.
TEST_F(LostEditTest, TheNetworkOfAKilledAddIsLeft) {
    const Json keys = {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16"}}, {"uplink", "up0"}};
    const Pod made = make(keys);
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(made.container->id(), "eth0"));
    const Tables tables = require(Tables::open(node_.bpffs()));
    node_.run("ip link del " + made.host_ifname);
    require(net::in_namespace(node_.ns(), [&] { return erase_endpoint(tables, *record.entry); }));
    require(tables.endpoints.remove(require(make_endpoint_key(made.container->id(), "eth0"))));
    record.entry.reset();
    require(records.write(record));
    EXPECT_THAT(del(*made.container, {{"name", "renamed"}, {"ipMasq", false}}), succeeds());
    EXPECT_TRUE(require(tables.networks.keys()).empty());
    EXPECT_EQ(everything(), before_);
}

// The only directory of the runtime's networks counts, without --state-dir.
TEST_F(LostEditTest, PodlanectlTakesTheStateDirOfTheNetworks) {
    const Json keys = {{"stateDir", node_.dir() + "/elsewhere/"}};
    const std::string conf = node_.dir() + "/net.d", with = " --conf-dir " + conf;
    fs::create_directory(conf);
    const auto write = [&](const std::string &name, const Json &plugin) {
        std::ofstream(conf + "/" + name) << Json{
            {"cniVersion", "1.0.0"}, {"name", name}, {"plugins", Json::array({plugin})}};
    };
    write("10-pods.conflist", node_.config(keys));
    const auto move_settings = [](const std::string &from, const std::string &to) {
        for (const auto &one : fs::directory_iterator(from))
            if (const std::string name = one.path().filename(); name.starts_with("settings-")) {
                fs::copy_file(one.path(), to + "/" + name);
                fs::remove(one.path());
            }
    };
    move_settings(kStateDirectory, node_.dir()); // with them, the default directory is in use
    const Pod made = make(keys);
    EXPECT_THAT(node_.podlanectl("doctor" + with).out, testing::Not(HasSubstr("its record")));
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(node_.podlanectl("doctor" + with).out, HasSubstr("has lost its entries"));
    EXPECT_EQ(node_.podlanectl("repair" + with).rc, 0);
    EXPECT_THAT(check(made, keys), succeeds());
    write("20-other.conflist", node_.config());
    EXPECT_THAT(node_.podlanectl("doctor" + with).out, HasSubstr("if the configuration has another stateDir"));
    EXPECT_THAT(del(*made.container, keys), succeeds());
    fs::remove(conf + "/20-other.conflist");
    move_settings(node_.dir(), kStateDirectory);
    const Pod former = make(); // before the edit
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(node_.podlanectl("doctor" + with).out, HasSubstr("has lost its entries"));
    EXPECT_THAT(del(*former.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// Its record would take the place of the one that names the lease.
TEST_F(LostEditTest, AnAddReleasesTheLeaseThatWaitsOrFails) {
    put_sleepy_plugin();
    for (const bool was_deleted : {true, false}) {
        SCOPED_TRACE(was_deleted);
        const Pod made = make(leases_in("former"));
        std::ofstream(asleep_).close();
        if (was_deleted) {
            EXPECT_THAT(del(*made.container, leases_in("edited")), succeeds());
        } else {
            lose_namespace(made);
        }
        const auto again = was_deleted ? made.container : node_.container(made.container->id());
        EXPECT_THAT(add(*again, leases_in("edited")),
                    fails_with(11, {"lease waits to be released", "the disk sleeps"}));
        EXPECT_EQ(leased(), 1U);
        fs::remove(asleep_);
        EXPECT_THAT(add(*again, leases_in("edited")), succeeds());
        EXPECT_EQ(leased(), 0U);
        EXPECT_THAT(del(*again, leases_in("edited")), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// The same of a plugin that is not installed.
TEST_F(LostEditTest, AnAddWithAnotherPluginLeavesTheLeaseOnRecord) {
    const std::string real = variable("CNI_PLUGINS") + "/host-local";
    node_.put_plugin("former-ipam", "#!/bin/sh\nexec " + real + "\n");
    Json former = leases_in("former");
    former["ipam"]["type"] = "former-ipam";
    const Pod made = make(former);
    node_.remove_plugin("former-ipam");
    EXPECT_THAT(del(*made.container, leases_in("edited")), succeeds());
    const Reply refused = add(*made.container, leases_in("edited"));
    EXPECT_NE(refused.rc, 0);
    EXPECT_THAT(refused.message(), has_all({"lease waits to be released", "\"former-ipam\" is not in CNI_PATH"}));
    EXPECT_THAT(refused.details(), HasSubstr("remove its record"));
    EXPECT_EQ(leased(), 1U);
    node_.put_plugin("former-ipam", "#!/bin/sh\nexec " + real + "\n");
    EXPECT_THAT(add(*made.container, leases_in("edited")), succeeds());
    EXPECT_EQ(leased(), 0U);
    EXPECT_THAT(del(*made.container, leases_in("edited")), succeeds());
    EXPECT_EQ(everything(), before_);
}

class EditedRootTest : public LostEditTest {
  protected:
    ~EditedRootTest() override { fs::remove_all(root_); }

    const std::string root_ = node_.bpffs() + "-edited";
    const Json former_ = {{"ipMasq", true}}, edited_ = {{"ipMasq", true}, {"bpffs", root_}};
};

// The rules of a network have its name, whatever root its pods are in.
TEST_F(EditedRootTest, TheLastPodOfARootLeavesTheRulesToThoseOfAnother) {
    const Pod old_one = make(former_), new_one = make(edited_);
    EXPECT_THAT(del(*old_one.container, edited_), succeeds());
    EXPECT_THAT(check(new_one, edited_), succeeds());
    EXPECT_THAT(add(*node_.container(), {{"bpffs", root_}, {"ipMasq", true}, {"mtu", 10}}).rc, testing::Ne(0));
    EXPECT_THAT(check(new_one, edited_), succeeds());
    EXPECT_THAT(del(*new_one.container, edited_), succeeds());
    EXPECT_EQ(node_.run("nft list ruleset"), "");
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(EditedRootTest, GcCollectsThePodsOfTheFormerRoot) {
    const Pod dead = make(former_), living = make(former_), new_one = make(edited_);
    lose_namespace(dead);
    EXPECT_THAT(gc({&new_one}, edited_), succeeds()); // another runtime may have those that live
    EXPECT_EQ(node_.leased().size(), 4U);
    EXPECT_FALSE(host_link(living).is_null());
    EXPECT_THAT(check(new_one, edited_), succeeds());
    lose_namespace(living);
    EXPECT_THAT(gc({}, edited_), succeeds());
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_EQ(node_.run("nft list ruleset"), "");
}

TEST_F(EditedRootTest, GcReleasesTheLeaseThatWaitsBelowTheFormerRoot) {
    put_sleepy_plugin();
    const Pod made = make(leases_in("former"));
    std::ofstream(asleep_).close();
    EXPECT_THAT(del(*made.container, leases_in("edited")), succeeds());
    Json edited = leases_in("edited");
    edited.update(edited_);
    EXPECT_THAT(gc({}, edited).err, HasSubstr("the disk sleeps"));
    EXPECT_EQ(leased(), 1U);
    fs::remove(asleep_);
    EXPECT_THAT(gc({}, edited), succeeds());
    EXPECT_EQ(leased(), 0U);
    EXPECT_TRUE(node_.records().empty());
}

class EditedStateTest : public EditedRootTest {
  protected:
    // Attachments made with the default directory, whose DELs and GCs come with these keys.
    [[nodiscard]] Json edits(const std::string &what) const {
        Json keys = leases_in(what.find("ipam") != std::string::npos ? "edited" : "former");
        keys.update({{"ipMasq", true}, {"stateDir", node_.dir() + "/state"}});
        if (what.find("bpffs") != std::string::npos)
            keys["bpffs"] = root_;
        return keys;
    }
    [[nodiscard]] Json made_with() const {
        Json keys = leases_in("former");
        keys["ipMasq"] = true;
        return keys;
    }
    void expect_nothing_left() const {
        EXPECT_EQ(leased(), 0U);
        EXPECT_TRUE(node_.records().empty());
        EXPECT_EQ(everything(), before_);
    }
    // As a reboot does: the maps, the rules and the pods go, and the namespaces of the node may have other numbers.
    void reboot(const Pod &made) const {
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        AttachmentRecord record = *require(records.find(made.container->id(), "eth0"));
        record.boot_id = "00000000-0000-0000-0000-000000000000";
        ++record.node_netns;
        require(records.write(record));
        lose_namespace(made);
        fs::remove_all(node_.bpffs());
        node_.run("nft flush ruleset");
    }
};

TEST_F(EditedStateTest, DelFindsTheRecordInTheDefaultDirectory) {
    for (const std::string what : {"stateDir", "stateDir, ipam", "stateDir, bpffs", "stateDir, ipam, bpffs"}) {
        SCOPED_TRACE(what);
        const Pod made = make(made_with());
        EXPECT_THAT(del(*made.container, edits(what)), succeeds());
        expect_nothing_left();
    }
}

TEST_F(EditedStateTest, GcFindsTheRecordInTheDefaultDirectory) {
    for (const std::string what : {"stateDir", "stateDir, ipam", "stateDir, bpffs"})
        for (const bool rebooted : {false, true}) {
            SCOPED_TRACE(what + (rebooted ? ", rebooted" : ""));
            const Pod made = make(made_with());
            rebooted ? reboot(made) : lose_namespace(made);
            EXPECT_THAT(gc({}, edits(what)), succeeds());
            expect_nothing_left();
        }
}

// Of two pods of which the other is on record in the edited directory.
TEST_F(EditedStateTest, TheLastPodOfTheFormerDirectoryLeavesTheRulesToThoseOfTheEditedOne) {
    const Pod old_one = make(made_with()), new_one = make(edits("stateDir"));
    EXPECT_THAT(del(*old_one.container, edits("stateDir")), succeeds());
    EXPECT_THAT(check(new_one, edits("stateDir")), succeeds());
    EXPECT_THAT(del(*new_one.container, edits("stateDir")), succeeds());
    expect_nothing_left();
}

// Of networks with an uplink: its programs, and the rules by which they know the node's addresses.
TEST_F(EditedStateTest, TheLastPodOfTheFormerDirectoryLeavesTheUplinkToThoseOfTheEditedOne) {
    const Json by_uplink = {{"uplink", "up0"}, {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}};
    for (const std::string what : {"stateDir", "stateDir, bpffs"}) {
        SCOPED_TRACE(what);
        Json former = made_with(), edited = edits(what);
        former.update(by_uplink);
        edited.update(by_uplink);
        const Pod old_one = make(former), new_one = make(edited);
        const std::string routing = node_.run("ip rule");
        ASSERT_THAT(routing, HasSubstr("1347158016"));
        EXPECT_THAT(del(*old_one.container, edited), succeeds());
        EXPECT_EQ(node_.run("ip rule"), routing);
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_THAT(programs(uplink_ifindex(), hook), testing::Not(testing::IsEmpty()));
        EXPECT_THAT(check(new_one, edited), succeeds());
        EXPECT_THAT(del(*new_one.container, edited), succeeds());
        EXPECT_NE(node_.run("ip rule"), routing);
    }
}

// The maps know it, wherever its record is.
TEST_F(EditedStateTest, DelWithoutRecordLooksInTheDefaultRootToo) {
    Json keys = made_with(), edited = edits("bpffs");
    keys["stateDir"] = node_.dir() + "/third";
    const Pod other = make(made_with()); // whose record names the root
    const std::string with_other = everything();
    const Pod made = make(keys);
    EXPECT_THAT(del(*made.container, edited), succeeds());
    EXPECT_EQ(everything(), with_other);
    EXPECT_EQ(leased(), 1U);
    EXPECT_THAT(del(*other.container, edited), succeeds());
    expect_nothing_left();
}

TEST_F(EditedStateTest, AddAndDelRestoreThePodsOnRecordInTheDefaultDirectory) {
    const Pod made = make(made_with());
    for (const std::string lost_before : {"ADD", "DEL"}) {
        SCOPED_TRACE(lost_before);
        std::optional<Pod> other;
        if (lost_before == "DEL")
            other = make(edits("stateDir"));
        fs::remove_all(node_.bpffs());
        if (lost_before == "ADD")
            other = make(edits("stateDir"));
        EXPECT_THAT(del(*other->container, edits("stateDir")), succeeds());
        EXPECT_THAT(check(made, edits("stateDir")), succeeds());
    }
    EXPECT_THAT(del(*made.container, edits("stateDir")), succeeds());
    expect_nothing_left();
}

// Groups that the container got after its ADD are in the record alone.
TEST_F(EditedStateTest, CheckFindsTheGroupsInTheDefaultDirectory) {
    Json keys = made_with(), edited = edits("stateDir");
    for (Json *both : {&keys, &edited})
        both->update({{"groups", {"name:tenant-b"}}, {"isolation", "group"}});
    const Pod made = make(keys);
    const Output added = node_.podlanectl("group add tenant-a --container " + made.container->id());
    ASSERT_EQ(added.rc, 0) << added.err;
    EXPECT_THAT(check(made, keys), succeeds());
    EXPECT_THAT(check(made, edited), succeeds());
    std::filesystem::create_directories(node_.dir() + "/state");
    const Output seen = node_.podlanectl("doctor --state-dir " + node_.dir() + "/state");
    EXPECT_THAT(seen.out, testing::Not(HasSubstr("its record")));
    EXPECT_THAT(del(*made.container, edited), succeeds());
    expect_nothing_left();
}

TEST_F(EditedStateTest, AnExpiredLeaseInTheDefaultDirectoryIsReleased) {
    const Variables of = {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}};
    Json keys = made_with();
    keys["keepAddress"] = "all";
    const Pod made = make(keys, of), other = make(made_with());
    EXPECT_THAT(del(*made.container, keys, of), succeeds());
    EXPECT_EQ(leased(), 2U);
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord held = *require(records.find(made.container->id(), "eth0"));
    held.held_until_ns = held.held_since_ns + 1;
    require(records.write(held));
    EXPECT_THAT(del(*other.container, edits("stateDir")), succeeds());
    expect_nothing_left();
}

TEST_F(EditedStateTest, AddRemovesWhatIsOnRecordInTheDefaultDirectory) {
    const Pod made = make(made_with());
    reboot(made);
    const auto again = node_.container(made.container->id());
    EXPECT_THAT(add(*again, edits("stateDir")), succeeds());
    EXPECT_EQ(leased(), 1U);
    EXPECT_THAT(del(*again, edits("stateDir")), succeeds());
    expect_nothing_left();
}

// Nobody would look for it there.
TEST_F(EditedStateTest, NoLeaseIsHeldInTheFormerDirectory) {
    const Variables of = {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}};
    Json keys = made_with(), edited = edits("stateDir");
    keys["keepAddress"] = edited["keepAddress"] = "all";
    const Pod made = make(keys, of);
    EXPECT_THAT(del(*made.container, edited, of), succeeds());
    expect_nothing_left();
}

// Its alias says whose it is.
TEST_F(LostEditTest, AnInterfaceOfAnotherPrefixIsRemovedWithoutRecordAndMaps) {
    const Pod made = make();
    fs::remove_all(node_.bpffs());
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    EXPECT_THAT(del(*made.container, {{"hostInterfacePrefix", "plan"}}), succeeds());
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
