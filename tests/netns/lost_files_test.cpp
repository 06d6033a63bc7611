// SPDX-License-Identifier: MIT
// Records on disk: whatever stands in a record's place, a disk that is full or read-only, and a write that was killed.
#include "loader/record.hpp"
#include "tests/harness/golden.hpp"
#include "tests/netns/ctl.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

namespace podlane::test {
namespace {

class LostFilesTest : public VerbsTest {
  protected:
    [[nodiscard]] std::string path_of(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    }
    Output call_under(const Container &container, const std::string &command, std::vector<std::string> argv,
                      const Json &keys = Json::object(), const std::string &args = "") {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}, {"CNI_ARGS", args}});
        return run(node_.ns(), argv, node_.config(keys).dump(), variables);
    }

    const std::string before_ = everything();
};

// Neither the DEL of that pod nor any call for others stumbles over it.
TEST_F(LostFilesTest, NoOtherFileInARecordsPlaceStopsDelAndGc) {
    Fd writer;
    const std::vector<std::pair<std::string, std::function<void(const std::string &)>>> kinds = {
        {"a link", [](const std::string &path) { fs::create_symlink("/etc/passwd", path); }},
        {"a link to nothing", [](const std::string &path) { fs::create_symlink("/nonexistent", path); }},
        {"a pipe", [](const std::string &path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
        {"a pipe with a writer",
         [&](const std::string &path) {
             ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
             writer = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
         }},
        {"a socket", [](const std::string &path) { ASSERT_EQ(mknod(path.c_str(), S_IFSOCK | 0600, 0), 0); }},
        {"a directory", [](const std::string &path) { fs::create_directory(path); }},
    };
    for (const auto &[what, create] : kinds) {
        SCOPED_TRACE(what);
        const Pod made = make(), other = make();
        const std::string path = path_of(made);
        fs::remove(path);
        create(path);
        EXPECT_THAT(gc({&made, &other}), succeeds());
        fs::remove_all(node_.bpffs() + "/live"); // from here on all records are read
        const Pod later = make();
        EXPECT_TRUE(ping(other.container->ns(), later.text4()));
        for (const Pod *pod : {&made, &other, &later})
            EXPECT_THAT(del(*pod->container), succeeds());
        if (what == "a directory")
            fs::remove(path);
        EXPECT_EQ(everything(), before_);
    }
}

// As after the package was downgraded: what this version cannot read, the other one can.
TEST_F(LostFilesTest, ARecordOfAnotherVersionIsKept) {
    const Pod made = make();
    const std::string path = path_of(made);
    std::string text = must_run(node_.ns(), {"cat", path});
    text.replace(text.find(" 2 "), 3, " 3 ");
    std::ofstream(path) << text;
    EXPECT_THAT(gc({&made}), succeeds());
    EXPECT_TRUE(fs::exists(path));
    EXPECT_TRUE(require(AttachmentRecords(kStateDirectory, node_.bpffs()).list()).empty());
    EXPECT_TRUE(fs::exists(path));
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It may stay so: each call would read all records again, and log an error.
TEST_F(LostFilesTest, ARecordThatCannotBeReadIsTriedTwiceAndThenOnceAMinute) {
    const Pod unread = make();
    fs::remove_all(node_.bpffs());
    std::vector<std::shared_ptr<Container>> all;
    const auto tries = [&] {
        const auto other = all.emplace_back(node_.container());
        const Output output = call_under(*other, "ADD",
                                         {"strace", "-qq", "-o", "/dev/null", "-e", "trace=read", "-e",
                                          "inject=read:error=EIO", "-P", path_of(unread)});
        EXPECT_EQ(output.rc, 0) << output.out;
        return output.err.find("count as none: reading " + path_of(unread)) != std::string::npos;
    };
    const auto wait_a_minute = [&] {
        fs::last_write_time(AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/.tried",
                            fs::file_time_type::clock::now() - std::chrono::minutes(2));
    };
    EXPECT_TRUE(tries());
    EXPECT_TRUE(tries()) << "as on a disk that fails once";
    EXPECT_FALSE(tries());
    wait_a_minute();
    EXPECT_TRUE(tries());
    wait_a_minute();
    EXPECT_THAT(del(*all.back()), succeeds());
    EXPECT_THAT(check(unread), succeeds()) << "it is restored";
    all.back() = unread.container;
    for (const auto &one : all)
        EXPECT_THAT(del(*one), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It is whole, and names a root whose records are elsewhere, or none.
TEST_F(LostFilesTest, ARecordOfAnotherRootCountsAsTorn) {
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    for (const std::string root : {"", "/sys/fs/bpf/elsewhere"}) {
        SCOPED_TRACE(root);
        const Pod made = make(), other = make();
        AttachmentRecord moved = *require(records.find(made.container->id(), "eth0"));
        moved.root = root;
        std::ofstream(path_of(made)) << record_text(moved);
        const Output doctor = run(node_.ns(), ctl_argv(node_.bpffs(), "doctor"));
        EXPECT_EQ(doctor.rc, 0) << doctor.out << doctor.err;
        EXPECT_THAT(doctor.out, HasSubstr(made.container->id()));
        EXPECT_THAT(del(*made.container), succeeds());
        EXPECT_THAT(check(other), succeeds());
        EXPECT_THAT(del(*other.container), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// Before 0.1.0 a record was one part without a length.
TEST_F(LostFilesTest, ARecordOfVersion1IsRead) {
    const Pod made = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    const AttachmentRecord written = *require(records.find(made.container->id(), "eth0"));
    std::string text = record_text(written);
    text.replace(text.find(" 2 "), 3, " 1 ");
    const std::size_t line = text.find('\n'), length = text.rfind(' ', line);
    text.erase(length, line - length);
    std::ofstream(path_of(made)) << text;
    EXPECT_EQ(record_text(require(records.list()).at(0)), record_text(written));
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(del(*make().container), succeeds()); // restores it
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(del(*made.container, {{"ipam", nullptr}}), succeeds());
    EXPECT_EQ(everything(), before_);
}

// Only a runtime's ADD refuses what an earlier version accepted.
TEST_F(LostFilesTest, ARecordOfWhatNoAddAcceptsAnyMoreRestoresItsPod) {
    const std::vector<Json> accepted = {{{"uplinks", {"up0", "eth0:1", "[a", "sixteen-letters-"}}},
                                        {{"routes", {{{"dst", "2001:db8:77::/48"}, {"mtu", 1200}}}}}};
    for (const Json &keys : accepted) {
        SCOPED_TRACE(keys.dump());
        EXPECT_EQ(add(*node_.container(), keys).rc, 1);
        const Pod made = make({{"uplinks", {"up0"}}});
        const std::uint32_t ifindex = record(made).ifindex;
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        AttachmentRecord written = *require(records.find(made.container->id(), "eth0"));
        Json config = Json::parse(written.config);
        config.update(keys);
        written.config = config.dump();
        require(records.write(written));
        fs::remove_all(node_.bpffs());
        EXPECT_THAT(del(*make().container), succeeds()); // restores it
        EXPECT_EQ(record(made).ifindex, ifindex);
        EXPECT_THAT(del(*made.container), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// The interface has that name beside its own.
TEST_F(LostFilesTest, ARecordOfAnUplinkNameThatNoAddAcceptsAnyMoreRestoresItsPod) {
    const Json keys = {{"uplink", "up0"}, {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}};
    node_.run("ip link property add dev up0 altname all");
    EXPECT_THAT(add(*node_.container(), {{"uplink", "all"}}), fails_with(7, {"uplink is \"all\""}));
    const Pod made = make(keys);
    const std::uint32_t ifindex = record(made).ifindex;
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord written = *require(records.find(made.container->id(), "eth0"));
    Json config = Json::parse(written.config);
    config["uplink"] = "all";
    written.config = config.dump();
    require(records.write(written));
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(del(*make(keys).container, keys), succeeds()); // restores it
    EXPECT_EQ(record(made).ifindex, ifindex);
    EXPECT_THAT(del(*made.container, keys), succeeds());
    node_.run("ip link property del dev up0 altname all");
    EXPECT_EQ(everything(), before_);
}

// A tenth of a millisecond of an ADD is for its record: one file, of which the kernel begins to write at once what a
// power cut does not take with it.
TEST_F(LostFilesTest, AnAddWritesOneFileAndAddsToIt) {
    struct Case {
        const char *what;
        Json keys;
        int files, begun;
    };
    const Json addresses = {{"ips", {{{"address", "198.18.9.77/24"}}}}};
    const std::vector<Case> cases = {{"with a lease", Json::object(), 1, 1},
                                     {"with a lease that is to be held", {{"keepAddress", "all"}}, 2, 2},
                                     {"without a lease", {{"ipam", nullptr}, {"prevResult", addresses}}, 1, 0}};
    const std::string trace = node_.dir() + "/trace";
    EXPECT_THAT(del(*make().container), succeeds()); // the first ADD notes what it has loaded
    for (const Case &one : cases) {
        SCOPED_TRACE(one.what);
        const auto container = node_.container();
        const std::string args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=demo;K8S_POD_NAME=" + container->id();
        const std::vector<std::string> strace = {"strace", "-qq", "-o", trace, "-e", "trace=rename,sync_file_range"};
        ASSERT_EQ(call_under(*container, "ADD", strace, one.keys, args).rc, 0);
        const auto calls = lines_of(must_run(node_.ns(), {"cat", trace}));
        const auto count = [&](const char *call) {
            return std::ranges::count_if(calls, [&](const std::string &line) { return line.starts_with(call); });
        };
        EXPECT_EQ(count("rename("), one.files);
        EXPECT_EQ(count("sync_file_range("), one.begun);
        EXPECT_TRUE(require(AttachmentRecords(kStateDirectory, node_.bpffs()).find(container->id(), "eth0"))->entry);
        EXPECT_THAT(del(*container, one.keys, {{"CNI_ARGS", args}}), succeeds());
    }
}

// On the build's file system: the state directory of tests is a tmpfs. CPU time, so that other work counts little.
TEST_F(LostFilesTest, AnAdditionCostsLessThanHalfOfAFile) {
    const std::string directory = fs::current_path() / ("record-" + std::to_string(getpid()));
    const AttachmentRecords records(directory, "/sys/fs/bpf/podlane");
    const auto cost_of = [](const auto &write) {
        timespec since{}, until{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &since);
        write();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &until);
        return (until.tv_sec - since.tv_sec) * 1'000'000'000 + until.tv_nsec - since.tv_nsec;
    };
    std::vector<long> files, additions;
    AttachmentRecord record;
    record.ifname = "eth0";
    record.config = std::string(600, 'x');
    for (int number = 0; number < 100; ++number) {
        record.container_id = std::to_string(number);
        files.push_back(cost_of([&] { require(records.write(record)); }));
        record.entry.emplace();
        additions.push_back(cost_of([&] { EXPECT_TRUE(require(records.add(record))); }));
        record.entry.reset();
    }
    fs::remove_all(directory);
    for (std::vector<long> *all : {&files, &additions})
        std::ranges::nth_element(*all, all->begin() + 50);
    EXPECT_LT(additions[50] * 2, files[50]);
}

// A DEL may be faster, and nothing is written into what stands there instead.
TEST_F(LostFilesTest, NothingIsAddedToWhatIsNoRecord) {
    const AttachmentRecords records(node_.dir() + "/state", "/pins");
    AttachmentRecord news;
    news.container_id = "gone";
    news.ifname = "eth0";
    EXPECT_FALSE(require(records.add(news)));
    EXPECT_FALSE(fs::exists(records.directory()));
    fs::create_directories(records.directory());
    const std::string path = records.directory() + "/gone:eth0", elsewhere = node_.dir() + "/elsewhere";
    std::ofstream(elsewhere) << "kept";
    fs::create_symlink(elsewhere, path);
    EXPECT_FALSE(require(records.add(news)));
    EXPECT_EQ(must_run(node_.ns(), {"cat", elsewhere}), "kept");
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const Fd reader(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_FALSE(require(records.add(news)));
}

// A write that was killed leaves a file that no DEL is sent for, if the runtime has died too.
TEST_F(LostFilesTest, GcRemovesWhatAKilledWriteLeft) {
    EXPECT_THAT(del(*make().container), succeeds()); // the first ADD renames what it has loaded
    const auto container = node_.container();
    (void)call_under(*container, "ADD", {"strace", "-qq", "-o", "/dev/null", "-e", "inject=rename:signal=KILL:when=1"});
    ASSERT_EQ(node_.records(), std::vector<std::string>{"." + container->id() + ":eth0"});
    EXPECT_THAT(gc(), succeeds());
    EXPECT_TRUE(node_.records().empty());
}

// It would hold up the DEL until the runtime gives up, again and again.
TEST_F(LostFilesTest, ALogThatIsAPipeNobodyReadsHoldsUpNoDel) {
    const std::string pipe = node_.dir() + "/log";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const Reply reply = del(*make().container, {{"log", {{"file", pipe}}}});
    EXPECT_THAT(reply, succeeds());
    EXPECT_THAT(reply.err, HasSubstr("log.file " + pipe));
    EXPECT_EQ(everything(), before_);
}

class LostDiskTest : public LostFilesTest {
  protected:
    LostDiskTest() {
        fs::create_directory(disk_);
        if (mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=128k") != 0)
            throw std::runtime_error("mounting a tmpfs");
    }
    ~LostDiskTest() override { umount2(disk_.c_str(), MNT_DETACH); }

    void remount(bool read_only) const {
        const unsigned long flags = read_only ? MS_REMOUNT | MS_RDONLY : MS_REMOUNT;
        ASSERT_EQ(mount(nullptr, disk_.c_str(), nullptr, flags, "size=128k"), 0);
    }
    [[nodiscard]] bool has_records() const {
        return std::ranges::any_of(fs::recursive_directory_iterator(disk_), [](const auto &entry) {
            return entry.path().filename().string().find(':') != std::string::npos;
        });
    }

    const std::string disk_ = node_.dir() + "/disk";
    const Json keys_ = {{"stateDir", disk_ + "/state"}, {"ipMasq", true}};
};

// Nothing is made that could not be recorded; and what has no record needs none to be removed.
TEST_F(LostDiskTest, AReadOnlyDiskRefusesAddAndKeepsItsRecords) {
    const Pod made = make(keys_);
    remount(true);
    const auto container = node_.container();
    const Reply refused = add(*container, keys_);
    EXPECT_THAT(refused, fails_with(5, {disk_, "Read-only file system"}));
    EXPECT_THAT(refused.details(), HasSubstr("stateDir"));
    EXPECT_THAT(del(*container, keys_), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    const Reply kept = del(*made.container, keys_);
    EXPECT_THAT(kept, fails_with(5, {"Read-only file system"})) << "its record stays";
    EXPECT_THAT(kept.details(), HasSubstr("for writing"));
    EXPECT_THAT(gc({}, keys_), fails_with(5, {"Read-only file system"}));
    remount(false);
    EXPECT_THAT(del(*made.container, keys_), succeeds());
    EXPECT_FALSE(has_records());
    EXPECT_EQ(everything(), before_);
}

// A lease that is to be held has nowhere to be noted, nor has one whose plugin is not there.
TEST_F(LostDiskTest, AFullDiskRefusesNoDelThatKeepsALease) {
    for (const bool held : {true, false}) {
        SCOPED_TRACE(held ? "held" : "of a missing plugin");
        Json keys = keys_;
        keys["keepAddress"] = held ? "all" : "none";
        keys["ipam"] = node_.ipam();
        keys["ipam"]["type"] = "own-ipam";
        node_.put_plugin("own-ipam", "#!/bin/sh\nexec " + variable("CNI_PLUGINS") + "/host-local\n");
        const Variables names = {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}};
        const Pod made = make(keys, names);
        const std::string fill = disk_ + "/fill";
        {
            std::ofstream file(fill);
            while (file << std::string(4096, 'x') << std::flush)
                ;
        }
        if (!held)
            node_.remove_plugin("own-ipam");
        const Reply reply = del(*made.container, keys, names);
        EXPECT_THAT(reply, succeeds());
        EXPECT_THAT(reply.err, HasSubstr("No space left on device"));
        EXPECT_TRUE(host_link(made).is_null());
        EXPECT_EQ(node_.leased().size(), held ? 0U : 2U);
        fs::remove(fill);
        node_.put_plugin("own-ipam", "#!/bin/sh\nexec " + variable("CNI_PLUGINS") + "/host-local\n");
        EXPECT_THAT(del(*made.container, keys, names), succeeds());
        EXPECT_FALSE(has_records());
        EXPECT_TRUE(node_.leased().empty());
        EXPECT_EQ(everything(), before_);
    }
}

// Also if the disk becomes full in the middle of a record.
TEST_F(LostDiskTest, AFullDiskRefusesAddAndNoDel) {
    const Pod made = make(keys_);
    for (const int pages : {0, 1}) {
        SCOPED_TRACE(std::to_string(pages) + " free pages");
        const std::string fill = disk_ + "/fill";
        {
            std::ofstream file(fill);
            while (file << std::string(4096, 'x') << std::flush)
                ;
        }
        fs::resize_file(fill, fs::file_size(fill) / 4096 * 4096 - static_cast<std::size_t>(pages) * 4096);
        const auto container = node_.container();
        const std::string longer = "IgnoreUnknown=1;NOTE=" + std::string(20000, 'x');
        EXPECT_THAT(add(*container, keys_, {{"CNI_ARGS", longer}}), fails_with(5, {"No space left on device"}));
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_THAT(del(*container, keys_), succeeds());
        EXPECT_THAT(check(made, keys_), succeeds());
        fs::remove(fill);
    }
    EXPECT_THAT(del(*made.container, keys_), succeeds());
    EXPECT_FALSE(has_records());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
