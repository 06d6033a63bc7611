// The embedded programs pass the verifier of the running kernel, are pinned with all their maps, and can be attached.
#include "loader/attach.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "maps/abi/names.h"
#include "maps/tables.hpp"

#include <gtest/gtest.h>

#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <string>

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

TEST_F(Load, AttachesToAClassicHook) {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0) << "needs CAP_SYS_ADMIN";
    const unsigned loopback = if_nametoindex("lo");
    const auto program = open_program(root_, PODLANE_PROGRAM_FROM_POD);
    ASSERT_TRUE(program) << program.error().message;

    const auto attached_to = attach(loopback, Hook::ingress, HookKind::clsact, program->get());

    ASSERT_TRUE(attached_to) << attached_to.error().message;
    const auto found = attached(loopback, Hook::ingress);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 1U);
    EXPECT_EQ(found->front().name, PODLANE_PROGRAM_FROM_POD);
    EXPECT_EQ(found->front().kind, HookKind::clsact);
}

} // namespace
} // namespace podlane
