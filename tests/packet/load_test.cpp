// SPDX-License-Identifier: MIT
// The embedded programs pass the verifier of the running kernel, are pinned with all their maps, and can be attached.
#include "loader/attach.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "loader/trace.hpp"
#include "maps/abi/names.h"
#include "maps/tables.hpp"
#include "tests/harness/error.hpp"
#include "tests/harness/process.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/utsname.h>

namespace podlane {
namespace {

using test::is_error;

constexpr std::array kMaps = {
    PODLANE_MAP_ENDPOINTS, PODLANE_MAP_INTERFACES,   PODLANE_MAP_ADDRESSES,    PODLANE_MAP_NETWORKS,
    PODLANE_MAP_PATHS,     PODLANE_MAP_COUNTERS,     PODLANE_MAP_SOURCES,      PODLANE_MAP_BANDWIDTHS,
    PODLANE_MAP_UPLINKS,   PODLANE_MAP_CIDRS,        PODLANE_MAP_LIMITS,       PODLANE_MAP_SOURCE_ROUTES,
    PODLANE_MAP_EXEMPT,    PODLANE_MAP_SENDERS,      PODLANE_MAP_WATCH,        PODLANE_MAP_EVENTS,
    PODLANE_MAP_HISTORY,   PODLANE_MAP_SOURCE_SLOTS, PODLANE_MAP_FLOWS,        PODLANE_MAP_FORWARDED,
    PODLANE_MAP_ISOLATION, PODLANE_MAP_GROUP_CIDRS,  PODLANE_MAP_LIMIT_GROUPS, PODLANE_MAP_KEPT_PATHS};
constexpr std::array kPrograms = {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_FROM_UPLINK,
                                  PODLANE_PROGRAM_TO_UPLINK, PODLANE_PROGRAM_PACE};
constexpr LoadSettings kSizes{64, 128};

std::set<std::string> names_in(const std::string &directory) {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(directory))
        names.insert(entry.path().filename());
    return names;
}

std::string name_of(const std::string &path) { return std::filesystem::path(path).filename(); }

// All zero if there is no such map.
bpf_map_info map_info(const std::string &root, const char *name) {
    bpf_map_info facts{};
    __u32 size = sizeof facts;
    const Fd map(bpf_obj_get(pin_path(root, name).c_str()));
    if (!map || bpf_obj_get_info_by_fd(map.get(), &facts, &size) != 0)
        return {};
    return facts;
}

int pin_small_map(const std::string &path) {
    const Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "test", 4, 4, 1, nullptr));
    return bpf_obj_pin(map.get(), path.c_str());
}

const std::string &root() {
    static const std::string path = "/sys/fs/bpf/podlane-load-test-" + std::to_string(getpid());
    return path;
}

void load() {
    const auto loaded = ensure_loaded(root(), kSizes);
    ASSERT_TRUE(loaded) << loaded.error().message << "\n" << loaded.error().hint;
}

void unload() {
    EXPECT_TRUE(remove_leftovers(root()));
    EXPECT_TRUE(remove_pins(live_directory(root())));
    rmdir(root().c_str());
    EXPECT_NE(access(root().c_str(), F_OK), 0) << root() << " is left behind";
}

// One set for the tests that only read it.
class Load : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (geteuid() == 0)
            load();
    }
    static void TearDownTestSuite() {
        if (geteuid() == 0)
            unload();
    }
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
    }
    const std::string root_ = root();
};

// A set of its own for each test that changes it.
class LoadAgain : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        load();
    }
    void TearDown() override {
        if (geteuid() == 0)
            unload();
    }
    const std::string root_ = root();
};

// The copies that explain runs are larger than the programs: they report what they do.
TEST_F(Load, LoadsTheCopiesThatAreRequested) {
    for (const char *name : kPrograms) {
        if (std::string_view(name) == PODLANE_PROGRAM_PACE)
            continue;
        const auto tracer = Tracer::load(root_, name);
        ASSERT_TRUE(tracer) << name << ": " << tracer.error().message << "\n" << tracer.error().hint;
    }
}

TEST_F(Load, PinsEveryProgramAndMap) {
    std::set<std::string> expected(kMaps.begin(), kMaps.end());
    expected.insert(kPrograms.begin(), kPrograms.end());
    expected.insert({PODLANE_PIN_PACING, "netns"});
    EXPECT_EQ(names_in(live_directory(root_)), expected);
}

// As after a load during which cgroup v2 could not be opened.
TEST_F(LoadAgain, AttachesThePacingProgramAtTheNextLoadIfItIsNotAttached) {
    ASSERT_EQ(unlink(pin_path(root_, PODLANE_PIN_PACING).c_str()), 0);
    ASSERT_FALSE(test::require(is_pacing(root_)));

    ASSERT_TRUE(ensure_loaded(root_, kSizes));

    EXPECT_TRUE(test::require(is_pacing(root_)));
}

TEST_F(Load, NamesProgramsAsTheyArePinned) {
    for (const char *name : kPrograms) {
        const auto program = open_program(root_, name);
        ASSERT_TRUE(program) << program.error().message;
        const auto facts = program_facts(program->get());
        ASSERT_TRUE(facts) << facts.error().message;
        EXPECT_EQ(facts->name, name);
    }
}

// It is most of what the first ADD of a boot waits for, and at a million the verifier refuses. Before 5.16 the kernel
// does not report it.
TEST_F(Load, GivesTheVerifierLittleToDo) {
    constexpr std::uint32_t kMost = 100'000;
    for (const char *name : kPrograms) {
        const auto program = open_program(root_, name);
        ASSERT_TRUE(program) << program.error().message;
        bpf_prog_info facts{};
        __u32 size = sizeof facts;
        ASSERT_EQ(bpf_obj_get_info_by_fd(program->get(), &facts, &size), 0);
        EXPECT_LE(facts.verified_insns, kMost) << name;
    }
}

// Without it all connections take the slow path: the loader's last resort if the verifier refuses.
TEST_F(Load, QueriesConntrackIfTheKernelCan) {
    EXPECT_EQ(test::require(programs_query_conntrack(root_)), test::require(kernel_has_ct_lookup()));
}

// For each object libbpf reads the types of the whole kernel, which takes as long as to have a program verified.
TEST_F(Load, TakesAllProgramsFromTwoObjects) {
    std::set<std::uint32_t> types;
    for (const char *name : kPrograms) {
        const auto program = open_program(root_, name);
        ASSERT_TRUE(program) << program.error().message;
        bpf_prog_info facts{};
        __u32 size = sizeof facts;
        ASSERT_EQ(bpf_obj_get_info_by_fd(program->get(), &facts, &size), 0);
        types.insert(facts.btf_id);
    }
    EXPECT_LE(types.size(), 2U);
}

TEST_F(Load, KeepsPinsFromEveryoneElse) {
    struct stat facts {};
    for (const std::string &directory : {root_, live_directory(root_)}) {
        ASSERT_EQ(stat(directory.c_str(), &facts), 0);
        EXPECT_EQ(facts.st_mode & 07777U, 0700U) << directory;
    }
    for (const std::string &name : names_in(live_directory(root_))) {
        ASSERT_EQ(lstat(pin_path(root_, name).c_str(), &facts), 0);
        EXPECT_TRUE(S_ISLNK(facts.st_mode) || (facts.st_mode & 07777U) == 0600U) << name;
    }
}

TEST_F(Load, DescribesEveryMapByItsTypes) {
    for (const char *name : kMaps) {
        const bpf_map_info facts = map_info(root_, name);
        if (facts.type == BPF_MAP_TYPE_RINGBUF)
            continue; // its records have no type
        EXPECT_NE(facts.btf_id, 0U) << name;
        EXPECT_NE(facts.btf_key_type_id, 0U) << name;
        EXPECT_NE(facts.btf_value_type_id, 0U) << name;
    }
}

TEST_F(Load, HonoursTheSizes) {
    const auto entries = [&](const char *name) { return map_info(root_, name).max_entries; };
    EXPECT_EQ(entries(PODLANE_MAP_ENDPOINTS), 64U);
    EXPECT_EQ(entries(PODLANE_MAP_INTERFACES), 64U);
    EXPECT_EQ(entries(PODLANE_MAP_ADDRESSES), 256U);
    EXPECT_EQ(entries(PODLANE_MAP_COUNTERS), 321U) << "endpoints, uplinks, and one for neither";
    EXPECT_EQ(entries(PODLANE_MAP_BANDWIDTHS), 64U);
    EXPECT_EQ(entries(PODLANE_MAP_GROUP_CIDRS), 64U * 64) << "as many prefixes as each endpoint may have";
    EXPECT_EQ(entries(PODLANE_MAP_PATHS), 128U);
}

// Ids of all maps and programs: the same ones mean that nothing was loaded again.
std::vector<std::uint32_t> ids(const std::string &root) {
    std::vector<std::uint32_t> all;
    for (const char *name : kMaps)
        all.push_back(map_info(root, name).id);
    for (const char *name : kPrograms) {
        const auto program = open_program(root, name);
        const auto facts = program ? program_facts(program->get()) : Result<ProgramFacts>(program.error());
        all.push_back(facts ? facts->id : 0);
    }
    return all;
}

TEST_F(Load, TwiceIsNoOperation) {
    const auto before = ids(root_);

    const auto again = ensure_loaded(root_, LoadSettings{128, 256});

    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(ids(root_), before);
}

TEST_F(LoadAgain, ReplacesWhatACrashLeft) {
    ASSERT_TRUE(remove_pins(live_directory(root_)));
    const std::string loading = root_ + "/loading";
    ASSERT_EQ(mkdir(loading.c_str(), 0700), 0);
    ASSERT_EQ(pin_small_map(loading + "/" PODLANE_MAP_PATHS), 0);

    const auto loaded = ensure_loaded(root_, kSizes);

    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(names_in(root_), std::set<std::string>{name_of(live_directory(root_))});
    EXPECT_EQ(map_info(root_, PODLANE_MAP_PATHS).max_entries, kSizes.paths);
}

TEST_F(LoadAgain, RecognisesMapsOfAnotherVersion) {
    ASSERT_EQ(pin_small_map(pin_path(root_, "endpoints_v0")), 0);
    const auto others = maps_of_other_versions(root_);
    ASSERT_TRUE(others) << others.error().message;
    EXPECT_EQ(*others, std::vector<std::string>{"endpoints_v0"});
    EXPECT_TRUE(check_pins(root_)) << "beside a complete set it does no harm";

    ASSERT_EQ(unlink(pin_path(root_, PODLANE_MAP_ENDPOINTS).c_str()), 0);
    EXPECT_THAT(check_pins(root_), is_error(ErrorCode::plugin_not_available, {PODLANE_MAP_ENDPOINTS, "endpoints_v0"}));
}

// Each of many processes finds or makes the one set, and says which it is by its maps' ids.
TEST_F(LoadAgain, FirstLoadsInParallelGiveOneSet) {
    constexpr int kProcesses = 8;
    ASSERT_TRUE(remove_pins(live_directory(root_)));
    ASSERT_EQ(rmdir(root_.c_str()), 0);
    std::array<int, 2> seen{};
    ASSERT_EQ(pipe(seen.data()), 0);
    for (int i = 0; i < kProcesses; ++i)
        if (const pid_t child = fork(); child == 0) {
            const auto load = [&] { return static_cast<bool>(ensure_loaded(root_, kSizes)); };
            // On an emulated machine one load can take as long as the others wait for the lock.
            const bool loaded = load() || (test::slow() && test::wait_until(load, std::chrono::minutes(10)));
            const std::uint32_t id = loaded ? map_info(root_, PODLANE_MAP_PATHS).id : 0;
            _exit(write(seen[1], &id, sizeof id) == sizeof id ? 0 : 1);
        }
    std::set<std::uint32_t> sets;
    for (int i = 0; i < kProcesses; ++i) {
        int status = 0;
        ASSERT_GT(wait(&status), 0);
        EXPECT_EQ(status, 0);
        std::uint32_t id = 0;
        ASSERT_EQ(read(seen[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
        sets.insert(id);
    }
    close(seen[0]);
    close(seen[1]);

    EXPECT_EQ(sets, std::set<std::uint32_t>{map_info(root_, PODLANE_MAP_PATHS).id});
    EXPECT_EQ(names_in(root_), std::set<std::string>{name_of(live_directory(root_))});
}

// Puts from_pod on the loopback of a new network namespace, by way of one kind of hook only.
void attach_in_new_namespace(const std::string &root, HookKind kind) {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    const unsigned loopback = if_nametoindex("lo");
    const auto program = open_program(root, PODLANE_PROGRAM_FROM_POD);
    ASSERT_TRUE(program) << program.error().message;

    const auto done = attach(loopback, Hook::ingress, kind, program->get());

    ASSERT_TRUE(done) << done.error().message;
    const auto found = attached(loopback, Hook::ingress);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 1U);
    EXPECT_EQ(found->front().name, PODLANE_PROGRAM_FROM_POD);
    EXPECT_EQ(found->front().kind, kind);
}

TEST_F(Load, AttachesToAClassicHook) { attach_in_new_namespace(root_, HookKind::clsact); }

TEST_F(Load, AttachesToTcx) {
    if (!has_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    attach_in_new_namespace(root_, HookKind::tcx);
}

// Without this, a broken probe would quietly turn every test of tcx into one of clsact.
TEST(Probe, FindsTcxWhereverTheVersionPromisesIt) {
    utsname names{};
    ASSERT_EQ(uname(&names), 0);
    int major = 0;
    int minor = 0;
    ASSERT_EQ(std::sscanf(names.release, "%d.%d", &major, &minor), 2) << names.release;
    if (std::pair(major, minor) < std::pair(6, 6))
        GTEST_SKIP() << "Linux " << names.release << " need not have it; has_tcx() says " << has_tcx();
    EXPECT_TRUE(has_tcx());
}

} // namespace
} // namespace podlane
