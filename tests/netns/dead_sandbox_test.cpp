// SPDX-License-Identifier: MIT
// An ADD after a sandbox that died without a DEL.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using DeadSandboxTest = VerbsTest;

// The same container ID comes back with another namespace.
TEST_F(DeadSandboxTest, ClearsTheRemainsOfADeadSandboxOfTheSameId) {
    const Pod dead = make();
    lose_namespace(dead);
    auto again = node_.container(dead.container->id());
    const Reply reply = succeeded(add(*again));
    EXPECT_EQ(size_of(&open_endpoints), 1U);
    EXPECT_EQ(size_of(&open_interfaces), 1U);
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_TRUE(ping(again->ns(), "203.0.113.2"));
    EXPECT_EQ(check(look_at(again, reply.json)).rc, 0);
}

// Whose error it is: the new sandbox has no lease yet.
TEST_F(DeadSandboxTest, SaysThatTheRemainsOfAnEarlierSandboxStay) {
    const Pod dead = make();
    lose_namespace(dead);
    const std::string real = node_.dir() + "/real";
    std::filesystem::create_symlink(std::filesystem::read_symlink(node_.plugins() + "/host-local"), real);
    node_.put_plugin("host-local", "#!/bin/sh\n[ $CNI_COMMAND != DEL ] || { echo '{\"code\": 11, \"msg\": \"no "
                                   "disk\"}'; exit 1; }\nexec " +
                                       real + "\n");
    auto again = node_.container(dead.container->id());
    EXPECT_THAT(add(*again), fails_with(11, {"removing what an earlier attachment left", "host-local", "no disk"}));
    node_.put_plugin("host-local", "#!/bin/sh\nexec " + real + "\n");
    EXPECT_THAT(add(*again), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
}

// The IPAM plugin lost its memory, and gives the address of a dead sandbox to the next one.
TEST_F(DeadSandboxTest, TakesTheAddressOfADeadSandbox) {
    const Pod dead = make();
    lose_namespace(dead);
    std::filesystem::remove_all(node_.leases());
    const Pod next = make();
    EXPECT_EQ(next.text4(), dead.text4());
    EXPECT_EQ(size_of(&open_endpoints), 1U);
    EXPECT_TRUE(ping(next.container->ns(), "203.0.113.2"));
    const std::string before = node_.state();
    node_.remove_plugin("host-local"); // which has one lease of the address, by now of the living
    (void)del(*dead.container);
    EXPECT_EQ(node_.state(), before) << "a late DEL of the dead one";
}

} // namespace
} // namespace podlane::test
