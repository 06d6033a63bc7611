// SPDX-License-Identifier: MIT
// Nothing is lost: what DEL and GC have to remove is known after edited configurations, failed and killed calls, lost
// maps and reboots.
#include "loader/record.hpp"
#include "loader/state_file.hpp"
#include "tests/netns/verbs.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

class LostTest : public VerbsTest {
  protected:
    const Json all_ = all_features();

    void expect_nothing_left() const { EXPECT_EQ(everything(), before_); }

    std::string before_ = everything();
};

// The first calls after a boot note its generation at once. Whoever reads it meanwhile finds what one of them wrote.
TEST_F(LostTest, AFileIsReplacedByManyAtOnce) {
    const std::string directory = node_.dir() + "/many";
    const std::vector<std::string> texts = {"text", std::string(9000, 'x')};
    require(replace_file(directory, "same", texts[0]));
    const auto replace = [&](const std::string &text) {
        for (int round = 0; round < 500; ++round) {
            if (const auto replaced = replace_file(directory, "same", text); !replaced)
                ADD_FAILURE() << replaced.error().message;
            const std::string found = require(read_state_file(directory + "/same")).value_or("none");
            if (std::ranges::find(texts, found) == texts.end()) {
                ADD_FAILURE() << "a file of " << found.size() << " bytes";
                return;
            }
        }
    };
    const std::array<std::jthread, 4> calls{std::jthread(replace, texts[0]), std::jthread(replace, texts[1]),
                                            std::jthread(replace, texts[0]), std::jthread(replace, texts[1])};
}

// An edited conflist, or a runtime's whim, must not keep a pod from going away.
TEST_F(LostTest, DelNeverRefuses) {
    const std::vector<std::pair<std::string, Json>> edits = {
        {"an unknown key", {{"fastPaht", "on"}}},
        {"a value of another type", {{"mtu", "much"}}},
        {"a changed prefix of names", {{"hostInterfacePrefix", "far-too-long"}}},
        {"a bad MAC", {{"runtimeConfig", {{"mac", "nonsense"}}}}},
        {"bad limits", {{"runtimeConfig", {{"bandwidth", {{"ingressRate", -1}}}}}}},
        {"an invalid subnet", {{"allowedSources", {"192.0.2.0/33"}}}},
        {"invalid cluster CIDRs", {{"clusterCIDRs", "nowhere"}}},
        {"an unusable bpffs", {{"bpffs", "relative"}}},
        {"another bpffs", {{"bpffs", "/sys/fs/bpf/elsewhere"}}},
        {"a bpffs that is a file", {{"bpffs", "/etc/passwd"}}},
        {"no name", {{"name", nullptr}}},
        {"another IPAM plugin", {{"ipam", {{"type", "no-such-ipam"}}}}},
        {"no IPAM plugin", {{"ipam", nullptr}}},
        {"an IPAM type that is a path", {{"ipam", {{"type", "../host-local"}}}}},
        {"another directory of leases", {{"ipam", {{"dataDir", node_.dir() + "/elsewhere"}}}}},
        {"a bad prevResult", {{"prevResult", {{"ips", "none"}}}}},
        {"a version that is none", {{"cniVersion", "9.9.9"}}},
        {"a log that is none", {{"log", "loud"}}},
        {"a range of leases that is none", {{"ipam", {{"ranges", {{{{"subnet", "198.51.100.0/33"}}}}}}}}},
        {"a requested address that is none", {{"runtimeConfig", {{"ips", {"192.0.2.300"}}}}}},
        {"arguments that are none", {{"args", {{"cni", 7}}}}},
        {"a version that is a number", {{"cniVersion", 1.0}}},
        {"Podlane as its own IPAM plugin", {{"ipam", {{"type", "podlane"}}}, {"ipamTimeout", 2}}},
    };
    for (const auto &[what, edit] : edits) {
        SCOPED_TRACE(what);
        const Pod made = make(all_);
        Json keys = all_;
        keys.merge_patch(edit);
        for (int i = 0; i < 2; ++i) { // runtimes repeat their DELs
            EXPECT_THAT(del(*made.container, keys), succeeds());
            expect_nothing_left();
        }
    }
}

TEST_F(LostTest, DelNeverRefusesAnEnvironment) {
    for (const auto &[variable, value] : std::vector<std::pair<std::string, std::string>>{
             {"CNI_ARGS", "K8S_POD_NAME"}, {"CNI_ARGS", "MAC=nonsense"}, {"CNI_ARGS", "FOO=bar"}, {"CNI_NETNS", "x"}}) {
        SCOPED_TRACE(variable + "=" + value);
        const Reply reply = succeeded(del(*make(all_).container, all_, {{variable, value}}));
        EXPECT_THAT(reply.err, HasSubstr(variable));
        expect_nothing_left();
    }
    // An attachment that no ADD accepts was never made.
    for (const auto &[variable, value] :
         std::vector<std::pair<std::string, std::string>>{{"CNI_CONTAINERID", std::string(128, 'a')},
                                                          {"CNI_CONTAINERID", "a/b"},
                                                          {"CNI_IFNAME", "sixteen-letters-"}}) {
        SCOPED_TRACE(variable + "=" + value);
        const Reply reply = succeeded(del(*node_.container(), all_, {{variable, value}}));
        EXPECT_THAT(reply.err, HasSubstr(variable));
    }
    // A network that has never been there, below what is no directory.
    EXPECT_THAT(del(*node_.container(), {{"bpffs", "/etc/passwd"}}), succeeds());
    EXPECT_THAT(node_.cni_text("podlane", "GC", gc_config({}, all_).dump(), {{"CNI_PATH", "relative"}}), succeeds());
    expect_nothing_left();
}

// Its number and its alias say whose it is.
TEST_F(LostTest, DelAndGcRemoveARenamedInterface) {
    for (const bool by_gc : {false, true}) {
        SCOPED_TRACE(by_gc ? "GC" : "DEL");
        const Pod made = make(all_), other = make(all_); // GC removes the interfaces of several at once
        node_.run("ip link set " + made.host_ifname + " down");
        node_.run("ip link set " + made.host_ifname + " name renamed");
        EXPECT_THAT(by_gc ? gc({}, all_) : del(*made.container, all_), succeeds());
        if (!by_gc) {
            EXPECT_THAT(del(*other.container, all_), succeeds());
        }
        expect_nothing_left();
    }
}

// Standard input that is no configuration: the record on disk has that of the ADD.
TEST_F(LostTest, DelSucceedsWithoutAConfiguration) {
    for (const std::string text : {"", "{", "[]", "{\"name\":\"pods\""}) {
        SCOPED_TRACE(text);
        const Pod made = make(all_);
        EXPECT_THAT(node_.cni_text("podlane", "DEL", text, attachment(*made.container)), succeeds());
        expect_nothing_left();
    }
    EXPECT_THAT(node_.cni_text("podlane", "DEL", "{", attachment(*node_.container())), fails_with(6));
}

TEST_F(LostTest, GcSucceedsWithAnEditedConfiguration) {
    (void)make(all_);
    Json keys = all_;
    keys.merge_patch({{"fastPaht", "on"}, {"mtu", "much"}, {"ipam", {{"type", "no-such-ipam"}}}});
    EXPECT_THAT(gc({}, keys), succeeds());
    expect_nothing_left();
}

// A map entry cannot be deleted once (EBUSY): the DEL fails, and the next one finishes. Each deletion is hit in turn.
TEST_F(LostTest, DelAfterAFailedDeletionFinishes) {
    const auto del_under = [&](const Container &container, std::vector<std::string> argv) {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", "DEL"}, {"CNI_PATH", node_.plugins()}});
        return run(node_.ns(), argv, node_.config(all_).dump(), variables);
    };
    const std::string trace = node_.dir() + "/trace";
    ASSERT_EQ(del_under(*make(all_).container, {"strace", "-qq", "-e", "trace=bpf", "-o", trace}).rc, 0);
    std::vector<int> deletions;
    std::ifstream file(trace);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.find("BPF_MAP_DELETE_ELEM") != std::string::npos)
            deletions.push_back(number);
    }
    ASSERT_GT(deletions.size(), 10U);
    std::size_t failures = 0;
    for (const int one : deletions) {
        SCOPED_TRACE("bpf call " + std::to_string(one));
        const Pod made = make(all_);
        const std::string fault = "inject=bpf:error=EBUSY:when=" + std::to_string(one);
        const Output failed = del_under(*made.container, {"strace", "-qq", "-o", "/dev/null", "-e", fault});
        failures += failed.rc == 1 ? 1 : 0;
        if (failed.rc == 0)
            expect_nothing_left();
        EXPECT_EQ(del(*made.container, all_).rc, 0);
        expect_nothing_left();
    }
    EXPECT_GE(failures + 1, deletions.size()) << "a call or so may fall elsewhere in the next run";
}

// The pins of the maps are gone, and the next pod loads new ones: DEL knows the first pod from the disk.
TEST_F(LostTest, DelRemovesAllAfterLostMaps) {
    const Pod first = make(all_);
    fs::remove_all(node_.bpffs());
    const Pod second = make(all_);
    EXPECT_EQ(del(*second.container, all_).rc, 0);
    EXPECT_THAT(node_.run("nft list ruleset"), HasSubstr(first.text4())) << "it lives, and is translated as before";
    EXPECT_TRUE(ping(first.container->ns(), "203.0.113.1"));
    EXPECT_EQ(del(*first.container, all_).rc, 0);
    expect_nothing_left();
}

// A pod whose maps were deleted gets entries, current programs, NAT and limits back at the next ADD.
TEST_F(LostTest, AddRestoresPodsAfterLostMaps) {
    const Pod first = make(all_);
    const Pod second = make(all_);
    fs::remove_all(node_.bpffs());
    const Pod third = make(all_);
    for (const Pod *pod : {&first, &second, &third}) {
        EXPECT_THAT(check(*pod, all_), succeeds());
        EXPECT_TRUE(ping(pod->container->ns(), "203.0.113.1"));
        EXPECT_TRUE(ping(pod->container->ns(), first.text4()));
    }
    EXPECT_THAT(node_.run("nft list ruleset"), HasSubstr(first.text4()));
    for (const Pod *pod : {&first, &third})
        EXPECT_EQ(del(*pod->container, all_).rc, 0);
    fs::remove_all(node_.bpffs());
    EXPECT_EQ(del(*second.container, all_).rc, 0) << "of the last pod";
    expect_nothing_left();
    EXPECT_TRUE(programs(uplink_ifindex(), Hook::egress).empty());
}

// After a reboot the runtime has forgotten its pods, and their leases would stay for ever.
TEST_F(LostTest, GcAfterARebootReleasesLeases) {
    (void)make(all_);
    auto living = make(all_);
    ASSERT_EQ(node_.leased().size(), 4U);
    // Everything but the disk is gone.
    fs::remove_all(node_.bpffs());
    for (const Json &link : ip_json(node_.ns(), "link"))
        if (link.value("ifalias", "").starts_with("podlane "))
            node_.run("ip link del " + link.at("ifname").get<std::string>());
    node_.run("nft flush ruleset");
    std::ofstream(node_.dir() + "/boot_id") << "11111111-2222-3333-4444-555555555555\n";
    const char *path = "/proc/sys/kernel/random/boot_id";
    ASSERT_EQ(mount((node_.dir() + "/boot_id").c_str(), path, nullptr, MS_BIND, nullptr), 0);
    const auto running = make(all_);
    EXPECT_THAT(gc({&running}, all_), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(check(running, all_).rc, 0) << check(running, all_);
    EXPECT_EQ(del(*running.container, all_).rc, 0);
    umount2(path, MNT_DETACH);
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_TRUE(node_.records().empty());
}

// An administrator's backup, or the IPAM plugin's own directory.
TEST_F(LostTest, ForeignDirectoriesBesideTheRecordsStopNoDel) {
    fs::create_directories(std::string(kStateDirectory) + "/ipam/pods");
    const std::string backup = AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/backup:1";
    fs::create_directories(backup);
    const Pod made = make();
    fs::remove_all(node_.bpffs()); // from here on, all records are read
    EXPECT_THAT(del(*made.container), succeeds());
    fs::remove_all(backup);
    fs::remove_all(std::string(kStateDirectory) + "/ipam");
    expect_nothing_left();
}

// A torn file is no record, and a killed write leaves nothing that is read.
TEST_F(LostTest, TornRecordsAreIgnored) {
    const Pod made = make();
    const std::string directory = AttachmentRecords(kStateDirectory, node_.bpffs()).directory();
    const std::string path = directory + "/" + made.container->id() + ":eth0";
    ASSERT_TRUE(fs::exists(path));
    EXPECT_EQ(fs::status(directory).permissions(), fs::perms::owner_all);
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const std::string whole = must_run(node_.ns(), {"cat", path});
    const std::size_t first = whole.rfind("podlane-record "); // and behind it what the ADD learned later
    ASSERT_GT(first, 0U);
    for (const std::size_t size : {first - 1, std::size_t{40}, std::size_t{0}}) {
        std::ofstream(path) << whole.substr(0, size);
        std::ofstream(directory + "/." + made.container->id() + ":eth0") << "half";
        EXPECT_TRUE(require(AttachmentRecords(kStateDirectory, node_.bpffs()).list()).empty());
        EXPECT_TRUE(fs::exists(path)) << "the only trace of its lease, perhaps";
    }
    EXPECT_EQ(del(*made.container).rc, 0);
    EXPECT_TRUE(node_.records().empty());
    expect_nothing_left();
}

// The part in front of it counts: the lease is released without the maps.
TEST_F(LostTest, ATornAdditionIsIgnored) {
    const Pod made = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    const std::string path = records.directory() + "/" + made.container->id() + ":eth0";
    const std::string whole = must_run(node_.ns(), {"cat", path});
    EXPECT_TRUE(require(records.find(made.container->id(), "eth0"))->entry);
    const std::size_t first = whole.rfind("podlane-record ");
    for (const std::size_t size : {whole.size() - 1, first + 40, first}) {
        std::ofstream(path) << whole.substr(0, size);
        const auto found = require(records.list());
        ASSERT_EQ(found.size(), 1U);
        EXPECT_FALSE(found[0].entry);
        EXPECT_EQ(found[0].config, node_.config().dump());
    }
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(del(*made.container, {{"ipam", nullptr}}), succeeds());
    expect_nothing_left();
}

// An ADD that was killed left its lease: the next one of the same container gets one, not "duplicate allocation".
TEST_F(LostTest, AddReleasesTheLeaseOfAKilledOne) {
    const Pod before = make();
    ASSERT_EQ(del(*before.container).rc, 0);
    for (const bool with_record : {true, false}) {
        auto container = node_.container();
        ASSERT_EQ(node_.cni("host-local", "ADD", node_.config(), attachment(*container)).rc, 0);
        if (with_record) {
            AttachmentRecord record;
            record.container_id = container->id();
            record.ifname = "eth0";
            record.network = "pods";
            record.root = node_.bpffs();
            record.config = node_.config().dump();
            require(AttachmentRecords(kStateDirectory, node_.bpffs()).write(record));
        }
        EXPECT_THAT(add(*container), succeeds());
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_EQ(del(*container).rc, 0);
    }
    expect_nothing_left();
}

// The runtime's list of valid attachments cannot name an ADD that waits for its IPAM plugin.
TEST_F(LostTest, GcLeavesAnAddUnderWayAlone) {
    const Pod made = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(made.container->id(), "eth0"));
    record.container_id = "under-way";
    record.entry.reset();
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(node_.records(), std::vector<std::string>{"under-way:eth0"});
    record.created_boottime_ns = 0;
    require(records.write(record));
    EXPECT_THAT(gc(), succeeds());
    expect_nothing_left();
}

TEST_F(LostTest, StateDirectoryIsAKey) {
    const Json keys = {{"stateDir", node_.dir() + "/a/state/"}};
    const Pod made = make(keys);
    EXPECT_FALSE(fs::is_empty(node_.dir() + "/a/state"));
    EXPECT_TRUE(node_.records().empty());
    EXPECT_EQ(del(*made.container, keys).rc, 0);
    std::ofstream(node_.dir() + "/file") << "in the way";
    const Reply refused = add(*node_.container(), {{"stateDir", node_.dir() + "/file"}});
    EXPECT_THAT(refused, fails_with(5, {node_.dir() + "/file"}));
    EXPECT_THAT(refused.details(), HasSubstr("stateDir"));
    EXPECT_TRUE(node_.leased().empty());
}

} // namespace
} // namespace podlane::test
