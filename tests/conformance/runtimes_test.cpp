// SPDX-License-Identifier: MIT
// Requests that real runtimes sent their main plugin, sent to Podlane in its place: all are served.
#include "tests/conformance/recorded.hpp"

namespace podlane::test {
namespace {

class RuntimesTest : public RecordedTest, public testing::WithParamInterface<std::string> {};

TEST_P(RuntimesTest, AreServed) {
    std::size_t served = 0;
    for (const Json &recording : recordings(GetParam())) {
        const std::string plugin = recording["plugin"];
        if (plugin != "bridge" && plugin != "ptp")
            continue;
        const Reply reply = repeat(recording);
        EXPECT_EQ(reply.rc, 0) << recording["env"] << reply;
        ++served;
    }
    EXPECT_GT(served, 0U);
    EXPECT_EQ(size_of(&open_endpoints), results_.size());
}

INSTANTIATE_TEST_SUITE_P(Recorded, RuntimesTest,
                         testing::Values("cnitool-1.1.0.jsonl", "containerd-cri-1.1.0.jsonl", "containerd-cri.jsonl",
                                         "containerd-ctr.jsonl", "podman.jsonl"),
                         [](const auto &info) {
                             std::string name = info.param;
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

} // namespace
} // namespace podlane::test
