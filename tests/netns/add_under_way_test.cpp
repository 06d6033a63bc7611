// SPDX-License-Identifier: MIT
// Beside an ADD that takes long, GC leaves it its lease and its interface; of one that is killed nothing goes on. An
// uninstall beside a call is a transient error.
#include "tests/netns/add_under_way.hpp"

namespace podlane::test {
namespace {

TEST_F(AddUnderWayTest, ThePluginsOfAKilledAddAllocateNothingAfterItsDel) {
    node_.put_plugin("host-local", of_add_ + sleeping() + "exec " + real_ + "'\n");
    begin();
    kill(caller_, SIGKILL);
    adding_.join();
    EXPECT_THAT(del(*container_), succeeds());
    end();
    EXPECT_TRUE(wait_until([&] { return is_over(sleeper_); }));
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_EQ(everything(), before_);
}

// Its lease is there, and Podlane does not know it yet.
TEST_F(AddUnderWayTest, GcLeavesTheLeaseAsLongAsTheIpamPluginMayTake) {
    sleep_with_lease();
    begin({{"ipamTimeout", 300}});
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(container_->id(), "eth0"));
    record.created_boottime_ns -= std::min(200 * kNsPerSecond, record.created_boottime_ns - 1);
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(node_.records().size(), 1U);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json)), succeeds());
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

// The container's other interface is whole beside it, and after it was killed; of an isolated one, the addresses come
// early.
TEST_F(AddUnderWayTest, AnotherInterfaceOfTheContainerIsWhole) {
    const Reply first = add(*container_);
    ASSERT_THAT(first, succeeds());
    const Pod made = look_at(container_, first.json);
    for (const Json &isolation : {Json::object(), Json{{"isolation", "network"}}}) {
        Json keys = {{"name", "second"},
                     {"ipam", {{"ranges", {{{{"subnet", "198.18.44.0/24"}}}}}}},
                     {"clusterCIDRs", {"198.18.0.0/16"}},
                     {"ipMasq", true}};
        keys.update(isolation);
        const Variables net1 = {{"CNI_IFNAME", "net1"}};
        std::ofstream(asleep_).close();
        caller_ = 0;
        begin_with_rules(keys, net1);
        ASSERT_GT(caller_, 0) << reply_;
        EXPECT_THAT(check(made), succeeds());
        kill(caller_, SIGKILL);
        end();
        EXPECT_THAT(check(made), succeeds()) << isolation;
        (void)node_.podlanectl("repair"); // the container's second interface is not all it was to be
        EXPECT_THAT(check(made), succeeds()) << isolation;
        EXPECT_THAT(del(*container_, keys, net1), succeeds());
        EXPECT_THAT(check(made), succeeds());
        fs::remove(noted_);
        fs::remove_all(node_.dir() + "/tools");
    }
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// In a time namespace a runtime's clock may be ahead.
TEST_F(AddUnderWayTest, GcLeavesTheLeaseOfAnAddOfATimeToCome) {
    sleep_with_lease();
    begin();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(container_->id(), "eth0"));
    record.created_boottime_ns += 1000 * kNsPerSecond;
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    end();
    EXPECT_THAT(reply_, succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(AddUnderWayTest, GcLeavesTheInterface) {
    const Json keys = {{"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}};
    const Pod other = make({{"clusterCIDRs", {"198.18.0.0/16"}}});
    begin_with_rules(keys);
    EXPECT_THAT(gc({&other}), succeeds());
    end();
    ASSERT_THAT(reply_, succeeds());
    EXPECT_THAT(check(look_at(container_, reply_.json), keys), succeeds());
    EXPECT_THAT(gc({&other}), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It has opened the maps, and does not find their pins when it takes the lock.
TEST_F(AddUnderWayTest, AnUninstallBesideItIsATransientError) {
    node_.put_plugin("host-local", of_add_ + variable("PODLANECTL_BIN") + " --bpffs " + node_.bpffs() +
                                       " uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir() +
                                       " >&2 || exit 1\nexec " + real_ + "\n");
    const Reply reply = add(*container_);
    EXPECT_THAT(reply, fails_with(11, {"the programs below " + node_.bpffs() + " were removed during this call"}));
    EXPECT_THAT(reply.details(), HasSubstr("repeat the call"));
    node_.put_plugin("host-local", "#!/bin/sh\nexec " + real_ + "\n");
    EXPECT_THAT(add(*container_), succeeds());
    EXPECT_THAT(del(*container_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// A call that has seen the pins, and finds their directory gone when it takes its lock.
TEST_F(AddUnderWayTest, AnUninstallBesideOtherVerbsIsATransientErrorToo) {
    const std::string podlane = fs::read_symlink(node_.plugins() + "/podlane");
    const auto call = [&](const Pod &made, const std::string &verb, int opening) {
        node_.put_plugin("podlane", "#!/bin/sh\nexec strace -qq -o /dev/null -P " + node_.bpffs() +
                                        " -e trace=openat -e inject=openat:error=ENOENT:when=" +
                                        std::to_string(opening) + " " + podlane + "\n");
        const Reply reply = verb == "GC" ? gc() : verb == "CHECK" ? check(made) : del(*made.container);
        node_.put_plugin("podlane", "#!/bin/sh\nexec " + podlane + "\n");
        return reply;
    };
    for (const std::string verb : {"CHECK", "DEL", "GC"}) {
        int refused = 0;
        for (int opening = 1; opening <= 6; ++opening) {
            SCOPED_TRACE(verb + " " + std::to_string(opening));
            const Pod made = make();
            const Reply reply = call(made, verb, opening);
            if (reply.rc != 0) {
                ++refused;
                EXPECT_THAT(reply, fails_with(11, {"the programs below " + node_.bpffs() + " were removed"}));
                EXPECT_THAT(reply.details(), HasSubstr("repeat the call"));
            }
            EXPECT_THAT(del(*made.container), succeeds());
            EXPECT_EQ(everything(), before_);
        }
        EXPECT_GT(refused, 0) << verb;
    }
}

// The directories of records and pins are root's alone, and root's to use.
TEST_F(AddUnderWayTest, TheUmaskOfTheRuntimeIsOfNoEffect) {
    const std::string podlane = fs::read_symlink(node_.plugins() + "/podlane"), state = node_.dir() + "/state/below";
    node_.put_plugin("masked", "#!/bin/sh\numask 0777\nexec " + podlane + "\n");
    const Json config = node_.config({{"stateDir", state}, {"cniVersion", "1.1.0"}});
    EXPECT_THAT(node_.cni("masked", "STATUS", config), succeeds());
    for (const std::string &path : {state, node_.dir() + "/state", node_.bpffs()})
        EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all) << path;
}

} // namespace
} // namespace podlane::test
