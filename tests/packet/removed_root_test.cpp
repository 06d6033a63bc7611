// SPDX-License-Identifier: MIT
// The root of the pins is removed while calls wait for its lock or load programs, as by an administrator or an
// uninstall: the lock is that of the root which is there now, and no set of pins is of two loads.
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "maps/abi/names.h"
#include "maps/tables.hpp"
#include "tests/harness/error.hpp"
#include "tests/harness/process.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/file.h>

#include <future>

namespace podlane::test {
namespace {

constexpr LoadSettings kSizes{64, 128};

std::set<std::string> names_in(const std::string &directory) {
    std::set<std::string> names;
    for (const auto &entry : fs::directory_iterator(directory))
        names.insert(entry.path().filename());
    return names;
}

bool waits_for_a_lock() {
    std::ifstream locks("/proc/locks");
    const std::string own = " " + std::to_string(getpid()) + " ";
    for (std::string line; std::getline(locks, line);)
        if (line.find("-> FLOCK") != std::string::npos && line.find(own) != std::string::npos)
            return true;
    return false;
}

void remove_root(const std::string &root) {
    const auto is_gone = [&] {
        std::error_code busy; // a call that loads may pin meanwhile
        fs::remove_all(root, busy);
        return access(root.c_str(), F_OK) != 0;
    };
    ASSERT_TRUE(wait_until(is_gone));
}

class RemovedRoot : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        require(prepare_root(root_));
    }
    void TearDown() override {
        if (geteuid() == 0)
            remove_root(root_);
    }
    const std::string root_ = "/sys/fs/bpf/podlane-removed-root-" + std::to_string(getpid());
};

// An administrator may remove it, and so does an uninstall.
TEST_F(RemovedRoot, ALockThatWasWaitedForIsOfTheRootThatIsThereNow) {
    std::optional<Lock> held = require(Lock::exclusive(root_));
    auto waiting = std::async(std::launch::async, [&] { return Lock::exclusive(root_); });
    EXPECT_TRUE(wait_until(&waits_for_a_lock));
    remove_root(root_);
    EXPECT_TRUE(prepare_root(root_));
    EXPECT_FALSE(require(held->is_of(root_)));
    held.reset();
    const Lock lock = require(waiting.get());
    EXPECT_TRUE(require(lock.is_of(root_)));
    const Fd again(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_NE(flock(again.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(RemovedRoot, ALockThatWasWaitedForIsMissingWithItsRoot) {
    std::optional<Lock> held = require(Lock::exclusive(root_));
    auto waiting = std::async(std::launch::async, [&] { return Lock::shared(root_); });
    EXPECT_TRUE(wait_until(&waits_for_a_lock));
    remove_root(root_);
    held.reset();
    EXPECT_THAT(waiting.get(), is_error(ErrorCode::missing, {root_}));
}

// Two calls, each with the lock of its root.
TEST_F(RemovedRoot, ALoadForTheFormerRootPinsNothingInTheNextOne) {
    const std::string former = require(make_loading_directory(root_));
    remove_root(root_);
    ASSERT_TRUE(prepare_root(root_));
    const std::string next = require(make_loading_directory(root_));
    EXPECT_FALSE(load_into(former, kSizes));
    EXPECT_FALSE(publish(root_, former));
    EXPECT_EQ(names_in(next), std::set<std::string>{});
    EXPECT_EQ(names_in(root_), std::set<std::string>{fs::path(next).filename()});
}

// Of programs on the maps of another set every pod's packets would end unknown.
TEST_F(RemovedRoot, ARootThatIsRemovedWhileOneLoadsGetsOneSet) {
    const pid_t former = fork();
    if (former == 0)
        _exit(ensure_loaded(root_, kSizes) ? 0 : 1);
    const auto has_maps = [&] { // and the verifier has the programs
        std::error_code gone;
        for (fs::recursive_directory_iterator pin(root_, gone), end; !gone && pin != end; pin.increment(gone))
            if (pin->path().filename() == PODLANE_MAP_PATHS)
                return true;
        return false;
    };
    EXPECT_TRUE(wait_until(has_maps, std::chrono::minutes(1)));
    remove_root(root_);
    require(ensure_loaded(root_, kSizes));
    int status = 0;
    ASSERT_EQ(waitpid(former, &status, 0), former);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(names_in(root_), std::set<std::string>{"live"});
    for (const char *name : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_FROM_UPLINK}) {
        const Fd program = require(open_program(root_, name));
        const ProgramMap used = require(find_program_map(program.get(), PODLANE_MAP_ADDRESSES));
        const Fd pinned(bpf_obj_get(pin_path(root_, PODLANE_MAP_ADDRESSES).c_str()));
        EXPECT_EQ(used.info.id, require(map_facts(pinned.get())).id) << name;
    }
    EXPECT_EQ(require(programs_query_conntrack(root_)), require(kernel_has_ct_lookup()));
}

} // namespace
} // namespace podlane::test
