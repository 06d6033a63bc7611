// SPDX-License-Identifier: MIT
// A configuration that was edited while pods live: DEL and GC go by what the ADD was called with, and what others need
// stays.
#include "tests/netns/verbs.hpp"

#include <sys/mount.h>

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

} // namespace
} // namespace podlane::test
