// SPDX-License-Identifier: MIT
// host-local dies after it has created a lease's file, and before it has written into it whose it is: the address is
// not lost, and nobody else's is released.
#include "loader/record.hpp"
#include "tests/netns/verbs.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>

#include <future>

namespace podlane::test {
namespace {

class EmptyLeaseTest : public VerbsTest {
  protected:
    // The next call of host-local, of a network in which no address was leased before.
    void kill_before_writing(const std::string &network, const std::string &lease, bool podlane_too) const {
        node_.put_plugin("host-local", "#!/bin/sh\nstrace -f -qq -o /dev/null -e trace=write -P " + leases(network) +
                                           "/" + lease + " -e inject=write:signal=KILL " + real_ + "\n" +
                                           (podlane_too ? "kill -9 $PPID; sleep 60\n" : "kill -9 $$\n"));
    }
    void restore_plugin() const { node_.put_plugin("host-local", "#!/bin/sh\nexec " + real_ + "\n"); }
    [[nodiscard]] std::string leases(const std::string &network) const { return node_.leases() + "/" + network; }
    [[nodiscard]] Reply gc_of_old_records(const Json &keys) const {
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        for (AttachmentRecord record : require(records.list())) {
            record.created_boottime_ns = 0; // else it may be under way
            require(records.write(record));
        }
        return gc({}, keys);
    }

    void expect_nothing_left() const { EXPECT_EQ(node_.state(), before_); }

    const std::string before_ = node_.state();
    const std::string real_ = variable("CNI_PLUGINS") + "/host-local";
};

TEST_F(EmptyLeaseTest, IsRemovedByTheNextCall) {
    for (const std::string lease : {"198.18.9.2", "2001:db8:9::2"})
        for (const std::string next : {"DEL", "ADD", "GC"})
            for (const bool podlane_too : {true, false}) {
                const std::string network = "torn" + next + std::to_string(lease.size()) + (podlane_too ? "k" : "");
                SCOPED_TRACE(network);
                const Json keys = {{"name", network}};
                const auto container = node_.container();
                kill_before_writing(network, lease, podlane_too);
                EXPECT_NE(add(*container, keys).rc, 0);
                EXPECT_TRUE(fs::is_empty(leases(network) + "/" + lease));
                // Reserved by its administrator, or another pod's.
                std::ofstream(leases(network) + "/198.18.9.9").close();
                fs::last_write_time(leases(network) + "/198.18.9.9",
                                    fs::file_time_type::clock::now() - std::chrono::hours(1));
                std::ofstream(leases(network) + "/198.18.9.10") << "other\r\neth0";
                restore_plugin();
                if (next == "ADD") {
                    EXPECT_THAT(add(*container, keys), succeeds());
                }
                EXPECT_THAT(next == "GC" ? gc_of_old_records(keys) : del(*container, keys), succeeds());
                EXPECT_THAT(node_.leased(), testing::ElementsAre("198.18.9.10", "198.18.9.9"));
                fs::remove_all(leases(network));
                expect_nothing_left();
            }
}

// Whoever has leases of host-local's in his hands has its lock, for a moment or for good.
TEST_F(EmptyLeaseTest, WaitsForHostLocalsLock) {
    const auto container = node_.container();
    kill_before_writing("pods", "198.18.9.2", true);
    EXPECT_NE(add(*container).rc, 0);
    // After host-local's own DEL, which waits without an end.
    node_.put_plugin("host-local", "#!/bin/sh\n" + real_ + "\nrc=$?\n: >" + node_.dir() + "/called\nuntil [ -e " +
                                       node_.dir() + "/held ]; do sleep 0.01; done\nexit $rc\n");
    auto deleted = std::async(std::launch::async, [&] { return del(*container); });
    ASSERT_TRUE(wait_until([&] { return fs::exists(node_.dir() + "/called"); }));
    {
        const Fd lock(::open((leases("pods") + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
        ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
        std::ofstream(node_.dir() + "/held").close();
        EXPECT_EQ(deleted.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
        EXPECT_THAT(node_.leased(), testing::ElementsAre("198.18.9.2"));
    }
    EXPECT_THAT(deleted.get(), succeeds());
    expect_nothing_left();
}

// By another program, or because the disk was full.
TEST_F(EmptyLeaseTest, IsRemovedIfItWasEmptiedAfterTheAdd) {
    for (const std::string next : {"DEL", "GC"}) {
        SCOPED_TRACE(next);
        const Pod made = make(), other = make();
        fs::resize_file(leases("pods") + "/" + made.text4(), 0);
        std::ofstream(leases("pods") + "/198.18.9.99").close(); // reserved by its administrator
        EXPECT_THAT(next == "GC" ? gc({&other}) : del(*made.container), succeeds());
        EXPECT_THAT(node_.leased(), testing::UnorderedElementsAre("198.18.9.99", other.text4(), other.text6()));
        fs::remove(leases("pods") + "/198.18.9.99");
        EXPECT_THAT(del(*other.container), succeeds());
        expect_nothing_left();
    }
}

// The file may be an empty one: the record stays, by which the next DEL knows whose it is.
TEST_F(EmptyLeaseTest, IsNotTakenForAWholeOneIfItCannotBeLookedAt) {
    const std::string podlane = fs::read_symlink(node_.plugins() + "/podlane");
    for (const std::string error : {"EIO", "EACCES", "ENOMEM"}) {
        SCOPED_TRACE(error);
        const Pod made = make();
        const std::string lease = leases("pods") + "/" + made.text4();
        fs::resize_file(lease, 0);
        node_.put_plugin("podlane", "#!/bin/sh\nexec strace -qq -o /dev/null -P " + lease +
                                        " -e trace=newfstatat -e inject=newfstatat:error=" + error + " " + podlane +
                                        "\n");
        EXPECT_THAT(del(*made.container), fails_with(5, {lease}));
        EXPECT_THAT(node_.records(), testing::SizeIs(1));
        EXPECT_THAT(node_.leased(), testing::ElementsAre(made.text4()));
        node_.put_plugin("podlane", "#!/bin/sh\nexec " + podlane + "\n");
        EXPECT_THAT(del(*made.container), succeeds());
        expect_nothing_left();
    }
}

// The file is there, but its text was not on the disk yet.
TEST_F(EmptyLeaseTest, IsRemovedAfterAPowerCut) {
    const Pod made = make(), other = make();
    for (const std::string &lease : node_.leased())
        fs::resize_file(leases("pods") + "/" + lease, 0);
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(node_.leased(), testing::UnorderedElementsAre(other.text4(), other.text6()));
    const std::string boot = "/proc/sys/kernel/random/boot_id";
    std::ofstream(node_.dir() + "/boot_id") << "11111111-2222-3333-4444-555555555555\n";
    ASSERT_EQ(mount((node_.dir() + "/boot_id").c_str(), boot.c_str(), nullptr, MS_BIND, nullptr), 0);
    EXPECT_THAT(del(*other.container), succeeds());
    umount2(boot.c_str(), MNT_DETACH);
    expect_nothing_left();
}

} // namespace
} // namespace podlane::test
