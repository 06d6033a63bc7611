// SPDX-License-Identifier: MIT
// A DEL whose IPAM plugin fails removes all but the lease, which waits on record until it is released.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

class UnreleasedLeaseTest : public CtlTest {
  protected:
    UnreleasedLeaseTest() { put_plugin(""); }
    // `first`: commands before all others.
    void put_plugin(const std::string &first) const {
        node_.put_plugin("flaky-ipam", "#!/bin/sh\n" + first + "if [ -e " + down_ +
                                           R"( ]; then echo '{"code":11,"msg":"server down"}'; exit 1; fi)"
                                           "\nexec " +
                                           real_ + "\n");
    }
    [[nodiscard]] Json keys() const {
        Json ipam = node_.ipam();
        ipam["type"] = "flaky-ipam";
        return {{"ipam", ipam}, {"ipMasq", true}};
    }
    // A pod of which a DEL has left the lease.
    Pod delete_in_vain() {
        Pod made = make(keys(), named("shop", "web-0"));
        std::ofstream(down_).close();
        EXPECT_THAT(del(*made.container, keys()), fails_with(11, {"server down"}));
        return made;
    }
    void expect_waits(const Pod &made) const {
        const Json listed = ctl_json("lease list");
        ASSERT_EQ(listed.size(), 1U);
        EXPECT_THAT(listed.at(0), has_members({{"pod", "shop/web-0"},
                                               {"state", "waits"},
                                               {"addresses", {made.text4(), made.text6()}},
                                               {"container_id", made.container->id()}}));
        for (const Json &finding : ctl_json("doctor"))
            EXPECT_TRUE(finding.at("severity") == "notice") << finding;
        const Json found = find(ctl_json("doctor"), "check", "waiting-lease");
        ASSERT_TRUE(found.is_object());
        EXPECT_THAT(found.at("finding").get<std::string>(), HasSubstr("\"flaky-ipam\""));
        EXPECT_EQ(node_.leased().size(), 2U);
    }

    const std::string down_ = node_.dir() + "/down", real_ = variable("CNI_PLUGINS") + "/host-local";
    const std::string before_ = everything();
};

TEST_F(UnreleasedLeaseTest, ItWaitsAndNothingElseIsLeft) {
    const Pod made = delete_in_vain();
    expect_waits(made);
    EXPECT_EQ(ctl_json("endpoint list"), Json::array());
    const std::string waiting = everything();
    EXPECT_EQ(ctl("repair").rc, 0);
    EXPECT_EQ(everything(), waiting) << "there is nothing to repair";
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(1, {"failed: ", "server down"}));
    EXPECT_THAT(del(*made.container, keys()), fails_with(11, {"server down"}));
    expect_waits(made);
    fs::remove(down_);
    EXPECT_THAT(del(*made.container, keys()), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(UnreleasedLeaseTest, WhoeverComesNextReleasesIt) {
    for (const std::string next : {"ADD", "GC", "gc", "lease release", "uninstall"}) {
        SCOPED_TRACE(next);
        const Pod made = delete_in_vain();
        if (next == "ADD") {
            EXPECT_THAT(add(*made.container, keys()), fails_with(11, {"server down"}));
            expect_waits(made);
        }
        fs::remove(down_);
        if (next == "ADD") {
            const Reply again = add(*made.container, keys());
            EXPECT_THAT(again, succeeds());
            EXPECT_THAT(check(look_at(made.container, again.json), keys()), succeeds());
            EXPECT_THAT(del(*made.container, keys()), succeeds());
        } else if (next == "GC") {
            EXPECT_THAT(gc({}, keys()), succeeds());
        } else {
            const std::string options = next == "gc" ? " --bin-dir " + node_.plugins()
                                        : next == "uninstall"
                                            ? " --conf-dir " + node_.dir() + " --bin-dir " + node_.dir()
                                            : " --all";
            EXPECT_EQ(ctl(next + options).rc, 0);
        }
        EXPECT_THAT(node_.leased(), IsEmpty());
        EXPECT_TRUE(node_.records().empty());
        if (next != "uninstall") {
            EXPECT_EQ(everything(), before_);
        }
    }
}

// Of an ADD that fails: it was given, and its addresses cannot be read.
TEST_F(UnreleasedLeaseTest, OneThatWasNotNamedStaysOnRecord) {
    put_plugin("[ $CNI_COMMAND != ADD ] || { " + real_ + " >/dev/null; echo no json; exit; }\n");
    std::ofstream(down_).close();
    const auto container = node_.container();
    const Reply failed = add(*container, keys());
    EXPECT_EQ(failed.rc, 1);
    EXPECT_THAT(failed.message(), has_all({"result of IPAM plugin \"flaky-ipam\"", "server down"}));
    EXPECT_EQ(node_.leased().size(), 2U);
    fs::remove(down_);
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = require(records.list()).at(0);
    record.created_boottime_ns = 0; // else it may be under way
    require(records.write(record));
    EXPECT_THAT(gc({}, keys()), succeeds());
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_EQ(everything(), before_);
}

TEST_F(UnreleasedLeaseTest, ItIsSeenWithoutPins) {
    for (const std::string by : {"lost pins", "uninstall"}) {
        SCOPED_TRACE(by);
        const Pod made = delete_in_vain();
        if (by == "uninstall")
            EXPECT_THAT(ctl("uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir()),
                        prints(1, {"kept: the lease of container " + made.container->id()}));
        else
            fs::remove_all(node_.bpffs());
        expect_waits(made);
        fs::remove(down_);
        EXPECT_THAT(del(*made.container, keys()), succeeds());
        EXPECT_THAT(node_.leased(), IsEmpty());
        EXPECT_TRUE(node_.records().empty());
    }
}

TEST_F(UnreleasedLeaseTest, AnUninstallThatLeavesItNamesItOnce) {
    const Pod dead = make(keys());
    lose_namespace(dead);
    std::ofstream(down_).close();
    const std::string uninstall = "uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir();
    const Output said = ctl(uninstall);
    EXPECT_THAT(said, prints(1, {"kept: the record of container " + dead.container->id(), "server down"}));
    EXPECT_EQ(said.out.find("kept: "), said.out.rfind("kept: ")) << said.out;
    fs::remove(down_);
    EXPECT_EQ(ctl(uninstall).rc, 0);
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_TRUE(node_.records().empty());
}

// host-local ignores that it cannot remove the lease's file.
TEST_F(UnreleasedLeaseTest, ItsDirectoryIsReadOnly) {
    const Pod made = make();
    const std::string directory = node_.leases();
    ASSERT_EQ(mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr), 0);
    ASSERT_EQ(mount(nullptr, directory.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const Reply refused = del(*made.container);
    ASSERT_EQ(umount2(directory.c_str(), MNT_DETACH), 0);
    EXPECT_THAT(refused, fails_with(5, {"host-local has not removed the lease", directory}));
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_TRUE(find(ctl_json("lease list"), "container_id", made.container->id()).is_object());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// At each call by which the maps and the record change.
TEST_F(UnreleasedLeaseTest, AKilledDelLosesNothing) {
    const auto killed_at = [&](const std::string &call, int number) {
        const Pod made = make(keys(), named("shop", "web-0"));
        std::ofstream(down_).close();
        const int calls = killed_del(*made.container, node_.config(keys()), call, number);
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_EQ(require(AttachmentRecords(kStateDirectory, node_.bpffs()).list()).size(), 1U) << "names the lease";
        fs::remove(down_);
        EXPECT_THAT(del(*made.container, keys()), succeeds());
        EXPECT_EQ(everything(), before_) << "killed at " << call << " " << number;
        return calls;
    };
    for (const std::string call : {"bpf", "rename", "unlink", "flock"}) {
        const int calls = killed_at(call, 0);
        EXPECT_TRUE(calls > 0 || call == "unlink");
        for (int last = calls; last > std::max(0, calls - 12); --last)
            EXPECT_LE(killed_at(call, last), last);
    }
}

} // namespace
} // namespace podlane::test
