// SPDX-License-Identifier: MIT
// A pod's process in its own network namespace, or any user of the node who can open it: neither holds CNI calls up.
#include "maps/clock.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/verbs.hpp"

#include <fcntl.h>
#include <sys/file.h>

namespace podlane::test {
namespace {

using testing::HasSubstr;

class AttackNamespace : public VerbsTest, public testing::WithParamInterface<bool> {
  protected:
    AttackNamespace() { fs::permissions(node_.dir(), fs::perms(0755)); } // as that of /run/netns

    // All locks that a file open for reading can have.
    [[nodiscard]] Fd lock_namespace_of(const Container &container) const {
        Fd held;
        const bool is_inside = GetParam();
        as_hostile(is_inside ? container.ns() : node_.ns(), Privilege::none, [&] {
            const std::string path = is_inside ? "/proc/thread-self/ns/net" : container.path();
            held = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
            struct flock all {};
            all.l_type = F_RDLCK;
            all.l_whence = SEEK_SET;
            if (!held || fcntl(held.get(), F_OFD_SETLK, &all) != 0 || flock(held.get(), LOCK_EX) != 0)
                throw std::runtime_error("locking " + path + ": " + std::strerror(errno));
        });
        return held;
    }

    const std::string before_ = everything();
};

TEST_P(AttackNamespace, LocksOnItDelayNeitherAddNorDel) {
    const Variables second = {{"CNI_IFNAME", "net1"}};
    EXPECT_THAT(del(*make().container), succeeds()); // the programs are loaded
    const auto container = node_.container();
    const Fd held = lock_namespace_of(*container);
    const std::uint64_t began = monotonic_ns();
    EXPECT_THAT(add(*container), succeeds());
    EXPECT_THAT(add(*container, Json::object(), second), succeeds());
    EXPECT_THAT(del(*container, Json::object(), second), succeeds());
    EXPECT_THAT(del(*container), succeeds());
    EXPECT_LT(monotonic_ns() - began, 5 * kNsPerSecond);
    EXPECT_EQ(everything(), before_);
}

TEST_P(AttackNamespace, LocksOnItKeepNothingFromGc) {
    const Pod made = make();
    const Fd held = lock_namespace_of(*made.container);
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

INSTANTIATE_TEST_SUITE_P(OfNobody, AttackNamespace, testing::Bool(),
                         [](const auto &each) { return each.param ? "Inside" : "Outside"; });

class AttackLinks : public VerbsTest {};

// Else a pod could have each ADD log as many lines as it has links.
TEST_F(AttackLinks, ItsOwnLinksAreOneLineOfTheLog) {
    const Pod made = make();
    for (int i = 0; i < 8; ++i) {
        made.container->run("ip link add d" + std::to_string(i) + " type bridge");
        made.container->run("ip link set d" + std::to_string(i) + " up");
    }
    const Variables second = {{"CNI_IFNAME", "net1"}};
    const Reply added = add(*made.container, {{"log", {{"level", "warning"}}}}, second);
    EXPECT_THAT(added, succeeds());
    EXPECT_THAT(added.err, HasSubstr("interfaces d0 (bridge), d1 (bridge), d2 (bridge) and 5 more of the container "
                                     "have no programs"));
    EXPECT_EQ(std::ranges::count(added.err, '\n'), 1) << added.err;
    EXPECT_THAT(del(*made.container, Json::object(), second), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
}

} // namespace
} // namespace podlane::test
