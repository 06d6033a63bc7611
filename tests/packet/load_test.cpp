// The embedded programs pass the verifier of the running kernel, are pinned with all their maps, and can be attached.
#include "loader/attach.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "maps/abi/names.h"
#include "maps/tables.hpp"

#include <gtest/gtest.h>

#include <net/if.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

namespace podlane {
namespace {

class Load : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        const auto loaded = ensure_loaded(root_, MapSizes{64, 64});
        ASSERT_TRUE(loaded) << loaded.error().message << "\n" << loaded.error().hint;
    }

    void TearDown() override {
        EXPECT_TRUE(remove_pins(live_directory(root_)));
        rmdir(root_.c_str());
        EXPECT_NE(access(root_.c_str(), F_OK), 0) << root_ << " is left behind";
    }

    const std::string root_ = "/sys/fs/bpf/podlane-load-test-" + std::to_string(getpid());
};

TEST_F(Load, PinsEveryProgramAndMap) {
    for (const char *name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_INTERFACES, PODLANE_MAP_ADDRESSES, PODLANE_MAP_NETWORKS,
                             PODLANE_MAP_PATHS, PODLANE_MAP_COUNTERS, PODLANE_MAP_SOURCES, PODLANE_MAP_BANDWIDTHS,
                             PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD})
        EXPECT_EQ(access(pin_path(root_, name).c_str(), F_OK), 0) << name;
}

TEST_F(Load, NamesProgramsAsTheyArePinned) {
    for (const char *name : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD}) {
        const auto program = open_program(root_, name);
        ASSERT_TRUE(program) << program.error().message;
        const auto facts = program_facts(program->get());
        ASSERT_TRUE(facts) << facts.error().message;
        EXPECT_EQ(facts->name, name);
    }
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
