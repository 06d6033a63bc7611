// SPDX-License-Identifier: MIT
// Two nodes, each a network namespace, are given the same directory of pins: the second is refused.
#include "tests/harness/node.hpp"

#include <gmock/gmock.h>

namespace podlane::test {
namespace {

using testing::HasSubstr;

TEST(SharedRoot, IsRefusedToTheSecondNode) {
    Node first, second;
    const auto pod = first.container("one");
    ASSERT_EQ(first.cni("ADD", first.config(), *pod).rc, 0);

    const Json config = second.config({{"bpffs", first.bpffs()}, {"cniVersion", "1.1.0"}});
    const auto other = second.container("two");
    for (const Reply &reply : {second.cni("ADD", config, *other), second.cni("podlane", "STATUS", config)}) {
        EXPECT_NE(reply.rc, 0);
        EXPECT_THAT(reply.out, HasSubstr("belongs to network namespace"));
    }
    EXPECT_EQ(second.cni("DEL", config, *other).rc, 0) << "DEL never refuses";
    EXPECT_EQ(first.cni("DEL", first.config(), *pod).rc, 0);
}

} // namespace
} // namespace podlane::test
