// SPDX-License-Identifier: MIT
// A podlanectl that changes the node and fails or is killed at any of its system calls: the pods are still connected,
// and the next call of the same command finishes what it began.
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "tests/netns/fault.hpp"

#include <bpf/bpf.h>

namespace podlane::test {
namespace {

constexpr std::size_t kSample = 2; // each loads the programs

class FaultCtlTest : public FaultTest {
  protected:
    // Programs are loaded by the same calls in each mode.
    FaultCtlTest() { without_load_ = GetParam() != "main"; }

    void expect_whole() const {
        expect_done("CHECK");
        EXPECT_TRUE(ping(node_.ns(), address()));
    }
    [[nodiscard]] std::string address() const { return to_string(prefix(result_.at("ips").at(0).at("address")).addr); }
    void expect_loaded_by(const std::string &command);
    // Settings that depend on how the programs were loaded.
    [[nodiscard]] std::string can() const {
        return std::string(require(programs_query_conntrack(node_.bpffs())) ? "queries conntrack, " : "") +
               (require(is_pacing(node_.bpffs())) ? "paces" : "");
    }
    // The names in these directories, and what is in the files.
    [[nodiscard]] std::string files() const {
        std::vector<std::string> all;
        for (const char *directory : {"/opt", "/conf"})
            for (const auto &entry : fs::directory_iterator(node_.dir() + directory))
                all.push_back(entry.path().string() + ": " + read_file(entry.path()));
        std::ranges::sort(all);
        std::string text;
        for (const std::string &one : all)
            text += one + "\n";
        return text;
    }
};

// `command` is the first of a boot, and loads the programs.
void FaultCtlTest::expect_loaded_by(const std::string &command) {
    const auto forget = [&] { fs::remove_all(node_.bpffs()); };
    forget();
    const auto faults = faults_of(command, kSample);
    const std::string loaded = can();
    must("DEL");
    for (const Fault &fault : faults) {
        SCOPED_TRACE(command + ", " + fault.text());
        forget();
        if (hit(command, fault).rc == 0) {
            EXPECT_EQ(can(), loaded);
        }
        if (command == "ADD")
            expect_done("DEL");
        must("ADD");
        expect_whole();
        EXPECT_EQ(can(), loaded);
        expect_clean_after("DEL");
    }
}

TEST_P(FaultCtlTest, FirstAddLoadsAllOrNothing) { expect_loaded_by("ADD"); }

TEST_P(FaultCtlTest, LoadLoadsAllOrNothing) {
    all_threads_ = true; // it has two, and no children
    expect_loaded_by("load --conf-dir " + node_.dir());
}

TEST_P(FaultCtlTest, RepairIsRepeated) {
    const auto lose_pins = [&] { fs::remove_all(node_.bpffs() + "/live"); };
    must("ADD");
    lose_pins();
    const auto faults = faults_of("repair", kSample);
    const std::string loaded = can();
    expect_whole();
    for (const Fault &fault : faults) {
        SCOPED_TRACE("repair, " + fault.text());
        lose_pins();
        if (hit("repair", fault).rc == 0) {
            expect_whole();
            EXPECT_EQ(can(), loaded);
        }
        expect_done("repair");
        expect_whole();
        expect_done("doctor");
    }
    expect_clean_after("DEL");
}

TEST_P(FaultCtlTest, UpgradeKeepsOldOrNew) {
    const std::string upgrade = "upgrade --force";
    must("ADD");
    const auto faults = faults_of(upgrade, kSample);
    const std::string with_pod = everything();
    const std::string loaded = can();
    for (const Fault &fault : faults) {
        SCOPED_TRACE("upgrade, " + fault.text());
        if (hit(upgrade, fault).rc == 0) {
            EXPECT_EQ(can(), loaded);
        }
        EXPECT_TRUE(ping(node_.ns(), address()));
        if (!fault.kills()) // one version or the other
            expect_done("CHECK");
        expect_done(upgrade);
        expect_whole();
        EXPECT_EQ(can(), loaded);
        expect_everything(with_pod);
    }
    expect_clean_after("DEL");
}

class FaultProbeTest : public FaultCtlTest {
  protected:
    [[nodiscard]] bool has_types(std::string_view map) const {
        const Fd pin(bpf_obj_get(pin_path(node_.bpffs(), map).c_str()));
        bpf_map_info info{};
        __u32 size = sizeof info;
        EXPECT_EQ(bpf_obj_get_info_by_fd(pin.get(), &info, &size), 0) << map;
        return info.btf_id != 0;
    }
};

// libbpf takes a probe that fails for a kernel without the feature, such as names of programs.
TEST_P(FaultProbeTest, NoProgramIsLoadedWithoutItsName) {
    must("ADD");
    for (int number = 1; number <= 3; ++number) {
        const Fault fault{{"bpf", number}, "error=EIO"};
        SCOPED_TRACE("repair, " + fault.text());
        fs::remove_all(node_.bpffs() + "/live");
        (void)hit("repair", fault);
        expect_done("repair");
        expect_whole();
        for (const char *name : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_UPLINK})
            EXPECT_EQ(require(program_facts(require(open_program(node_.bpffs(), name)).get())).name, name);
    }
    expect_clean_after("DEL");
}

// libbpf creates a map without its types if that failed with them. A map with a spin lock is then refused with another
// error, which says nothing about the kernel; others would stay without, and an upgrade could not carry them over.
TEST_P(FaultProbeTest, NothingIsLoadedWithoutItsTypes) {
    must("ADD");
    const std::string loaded = can();
    const std::string load = "load --conf-dir " + node_.dir();
    const auto load_by_one_thread = [&](const std::vector<std::string> &more) {
        fs::remove_all(node_.bpffs());
        std::vector<std::string> options{"-e", "trace=bpf,clone3", "-e", "inject=clone3:error=EAGAIN"};
        options.insert(options.end(), more.begin(), more.end());
        return call(load, strace(options)).rc;
    };
    const std::string trace = node_.dir() + "/trace";
    ASSERT_EQ(load_by_one_thread({"-o", trace}), 0);
    for (const char *name : {"addresses_v1", PODLANE_MAP_LIMITS, "programs.rodata", "programs.bss", "paced_sockets"}) {
        SCOPED_TRACE(name);
        const int number = number_of("bpf(BPF_MAP_CREATE", std::string("map_name=\"") + name, trace);
        ASSERT_GT(number, 0);
        EXPECT_NE(load_by_one_thread({"-o", "/dev/null", "-e", "inject=bpf:error=EIO:when=" + std::to_string(number)}),
                  0);
        expect_done("repair");
        expect_whole();
        EXPECT_EQ(can(), loaded);
        for (const std::string_view map : kMapNames)
            EXPECT_EQ(has_types(map), map != PODLANE_MAP_EVENTS) << map;
    }
    expect_clean_after("DEL");
}

// The second program cannot be attached, and what is on the first one's hook cannot be read then.
TEST_P(FaultProbeTest, AnUpgradeReportsWhatItCouldNotRollBack) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    must("ADD");
    const std::string trace = node_.dir() + "/trace", upgrade = "upgrade --force";
    const auto upgrade_by_one_thread = [&](const std::vector<std::string> &more) {
        std::vector<std::string> options{"-e", "trace=bpf,clone3", "-e", "inject=clone3:error=EAGAIN"};
        options.insert(options.end(), more.begin(), more.end());
        return call(upgrade, strace(options));
    };
    ASSERT_EQ(upgrade_by_one_thread({"-o", trace}).rc, 0);
    const int second = number_of("bpf(BPF_PROG_ATTACH", "replace_bpf_fd", trace, 2);
    ASSERT_GT(second, 0);
    const std::string failing = std::to_string(second) + ".." + std::to_string(second + 1);
    const Reply reply = upgrade_by_one_thread({"-o", "/dev/null", "-e", "inject=bpf:error=EIO:when=" + failing});
    EXPECT_EQ(reply.rc, 1);
    EXPECT_THAT(reply.err, has_all({"attaching to tcx", "listing the programs on tcx", "repeat podlanectl upgrade"}));
    expect_done(upgrade);
    expect_whole();
    expect_done("doctor");
    expect_clean_after("DEL");
}

// Programs that podlanectl loads for a moment: it does all or says why not, and the limit stays as it was.
TEST_P(FaultProbeTest, NothingIsLoadedForAMomentWithoutItsTypes) {
    must("ADD");
    const std::string container = container_->id();
    const std::string trace = node_.dir() + "/trace";
    const std::string explain = "explain --from " + container + " --to 192.0.2.1";
    const std::string set = "bandwidth set --container " + container + " --ingress ";
    const auto rate = [&] {
        return Json::parse(node_.podlanectl("bandwidth list --json").out).at(0).value("rate_bits_per_s", 0);
    };
    ASSERT_EQ(call(set + "9M", strace({"-e", "trace=bpf", "-o", trace})).rc, 0);
    std::vector<std::pair<std::string, int>> maps;
    for (const char *name : {"notify_s.rodata", "notify_s.bss"})
        if (const int number = number_of("bpf(BPF_MAP_CREATE", std::string("map_name=\"") + name, trace); number != 0)
            maps.emplace_back(set + "10M", number);
    ASSERT_EQ(call(explain, strace({"-e", "trace=bpf", "-o", trace})).rc, 0);
    maps.emplace_back(explain, number_of("bpf(BPF_MAP_CREATE", "map_name=\"traced_b.rodata", trace));
    for (const auto &[command, number] : maps) {
        SCOPED_TRACE(command + ", bpf " + std::to_string(number));
        ASSERT_GT(number, 0);
        const Reply reply = hit(command, {{"bpf", number}, "error=EIO"});
        EXPECT_NE(reply.rc, 0) << reply;
        EXPECT_EQ(rate(), 9000000);
        expect_done(command == explain ? explain : set + "9M");
    }
    expect_clean_after("DEL");
}

// Attaching it to cgroup v2 fails at the first load: limits hold all the same, and it is attached later.
TEST_P(FaultProbeTest, PacingThatCouldNotStartIsRestored) {
    all_threads_ = true;
    for (const char *next : {"ADD", "repair"}) {
        SCOPED_TRACE(next);
        fs::remove_all(node_.bpffs());
        const Reply added =
            call("ADD", strace({"-o", "/dev/null", "-e", "trace=fsopen", "-e", "inject=fsopen:error=EMFILE"}));
        ASSERT_EQ(added.rc, 0) << added;
        result_ = added.json;
        EXPECT_EQ(can().find("paces"), std::string::npos);
        expect_whole();
        for (const char *command : {"doctor", "status"})
            EXPECT_THAT(call(command).out, testing::HasSubstr("pl_pace is not attached")) << command;

        if (next == std::string("ADD"))
            expect_done("DEL");
        expect_done(next);

        EXPECT_NE(can().find("paces"), std::string::npos);
        expect_done("doctor");
        expect_clean_after("DEL");
    }
}

// Taken for an empty one, it would leave programs on interfaces, and rules that track the connections of pods.
TEST_P(FaultProbeTest, UninstallTakesNoMapForAnEmptyOneThatItCannotRead) {
    const std::string trace = node_.dir() + "/trace", nowhere = node_.dir() + "/nowhere";
    const std::string uninstall = "uninstall --bin-dir " + nowhere + " --conf-dir " + nowhere;
    must("ADD");
    ASSERT_EQ(call(uninstall, strace({"-s", "200", "-e", "trace=bpf", "-o", trace})).rc, 0);
    std::vector<int> numbers;
    for (const char *name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_UPLINKS, PODLANE_MAP_NETWORKS,
                             PODLANE_MAP_SOURCE_ROUTES, PODLANE_PROGRAM_FROM_POD})
        numbers.push_back(number_of("bpf(BPF_OBJ_GET", std::string("/") + name + "\"", trace));
    for (const int number : numbers) {
        SCOPED_TRACE("bpf " + std::to_string(number));
        ASSERT_GT(number, 0);
        must("DEL");
        must("ADD");
        const Reply reply = hit(uninstall, {{"bpf", number}, "error=EIO"});
        EXPECT_NE(reply.rc, 0) << reply;
        EXPECT_THAT(reply.err, testing::HasSubstr("podlanectl uninstall again"));
        EXPECT_TRUE(fs::exists(live_directory(node_.bpffs()))) << "what the next one goes by";
        expect_done(uninstall);
        EXPECT_THAT(node_.run("nft list ruleset"), testing::Not(testing::HasSubstr("chain conntrack")));
    }
    must("DEL");
    must("ADD");
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultProbeTest, testing::Values("main"), fault_mode);

std::vector<std::string> modes() {
    if (std::getenv("PODLANE_FAULTS") == nullptr)
        return {"main", "uplink"};
    return {"main", "after_ipam", "after_main", "uplink", "grouped"};
}
INSTANTIATE_TEST_SUITE_P(Modes, FaultCtlTest, testing::ValuesIn(modes()), fault_mode);

class FaultInstallTest : public FaultCtlTest {
  protected:
    FaultInstallTest() {
        for (const char *directory : {"/opt", "/conf"})
            fs::create_directory(node_.dir() + directory);
        for (const char *version : {"old", "new"})
            std::ofstream(node_.dir() + "/" + version) << version;
        fs::permissions(node_.dir() + "/old", fs::perms::owner_all);
        fs::permissions(node_.dir() + "/new", fs::perms::owner_all);
        where_ = " --bin-dir " + node_.dir() + "/opt --conf-dir " + node_.dir() + "/conf";
    }
    [[nodiscard]] std::string install(const std::string &version, const std::string &subnet) const {
        return "install --plugin " + node_.dir() + "/" + version + " --subnets " + subnet + where_;
    }

    std::string where_;
};

// Over nothing, and over an older version.
TEST_P(FaultInstallTest, InstallWritesAllOrNothing) {
    const std::string older = install("old", "198.18.9.0/24");
    const std::string newer = install("new", "198.18.10.0/24");
    for (const bool over : {false, true}) {
        const auto prepare = [&] {
            expect_done("uninstall" + where_);
            if (over)
                expect_done(older);
        };
        prepare();
        const auto faults = faults_of(newer, kSample);
        const std::string installed = files();
        for (const Fault &fault : faults) {
            SCOPED_TRACE("install, " + fault.text());
            prepare();
            if (hit(newer, fault).rc == 0) {
                EXPECT_EQ(files(), installed);
            }
            expect_done(newer);
            EXPECT_EQ(files(), installed);
            prepare();
            (void)hit(newer, fault);
            expect_done("uninstall" + where_);
            EXPECT_EQ(files(), "");
        }
    }
}

// In front of it, and chained into it; uninstall is hit as well.
TEST_P(FaultInstallTest, ANetworkOfOthersStaysAsItIs) {
    std::ofstream(node_.dir() + "/conf/20-theirs.conflist")
        << Json{{"cniVersion", "1.0.0"}, {"name", "theirs"}, {"plugins", {{{"type", "ptp"}, {"ipam", node_.ipam()}}}}};
    std::ofstream(node_.dir() + "/node.json") << R"({"kind": "Node", "spec": {"podCIDR": "198.18.9.0/24"}})";
    const std::string theirs = files();
    const std::string uninstall = "uninstall" + where_;
    for (const std::string &options : {" --from-node " + node_.dir() + "/node.json", std::string(" --mode chained")}) {
        const std::string install = "install --plugin " + node_.dir() + "/new" + options + where_;
        const auto faults = faults_of(install, kSample);
        const std::string installed = files();
        for (const Fault &fault : faults) {
            SCOPED_TRACE(install + ", " + fault.text());
            expect_done(uninstall);
            EXPECT_EQ(files(), theirs);
            if (hit(install, fault).rc == 0) {
                EXPECT_EQ(files(), installed);
            }
            expect_done(install);
            EXPECT_EQ(files(), installed);
            expect_done(uninstall);
            (void)hit(install, fault);
            expect_done(uninstall);
            EXPECT_EQ(files(), theirs);
        }
        expect_done(install);
        for (const Fault &fault : faults_of(uninstall, kSample)) {
            SCOPED_TRACE(uninstall + ", " + fault.text());
            expect_done(install);
            if (hit(uninstall, fault).rc == 0) {
                EXPECT_EQ(files(), theirs);
            }
            expect_done(uninstall);
            EXPECT_EQ(files(), theirs);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultInstallTest, testing::Values("main"), fault_mode);

} // namespace
} // namespace podlane::test
