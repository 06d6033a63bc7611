// SPDX-License-Identifier: MIT
// A process that is stopped while it holds the lock of the pins delays the others' calls, and they say who it is.
#include "loader/pins.hpp"
#include "tests/netns/ctl.hpp"

#include <unistd.h>

#include <future>

namespace podlane::test {
namespace {

class StoppedHolderTest : public CtlTest {
  protected:
    // Killed after a minute, as no call needs that long.
    [[nodiscard]] std::future<Output> start(std::vector<std::string> argv, const std::string &input = {},
                                            const Variables &variables = {}) const {
        argv.insert(argv.begin(), {"timeout", "-s", "KILL", "60"});
        return std::async(std::launch::async,
                          [this, argv, input, variables] { return run(node_.ns(), argv, input, variables); });
    }
    [[nodiscard]] std::future<Output> start(const std::string &verb, const Container &container,
                                            const Json &keys) const {
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", verb}, {"CNI_PATH", node_.plugins()}});
        return start({node_.plugins() + "/podlane"}, node_.config(keys).dump(), variables);
    }

    const Json others_ = {{"name", "others"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}}};
    const std::string before_ = everything();
};

// Shared, as of an ADD that is halfway; what is exclusive waits.
TEST_F(StoppedHolderTest, DelaysTheFirstAndTheLastOfANetworkAndRepair) {
    const Pod last = make();
    const auto first = node_.container();
    const std::string holder = std::to_string(getpid()) + " (";
    auto held = std::make_unique<Lock>(require(Lock::shared(node_.bpffs())));
    auto deleted = start("DEL", *last.container, Json::object());
    auto added = start("ADD", *first, others_);
    auto repaired = start(ctl_argv(node_.bpffs(), "repair"));
    for (auto *call : {&deleted, &added}) {
        const Reply reply = to_reply(call->get());
        EXPECT_THAT(reply, fails_with(11, {"locking " + node_.bpffs(), "held for 30 s", holder}));
        EXPECT_THAT(reply.details(), testing::HasSubstr("kill -CONT " + std::to_string(getpid())));
    }
    const Output output = repaired.get();
    EXPECT_EQ(output.rc, 1) << output.out << output.err;
    EXPECT_THAT(output.out + output.err, has_all({"locking " + node_.bpffs(), holder}));
    held.reset();
    EXPECT_THAT(del(*first, others_), succeeds());
    EXPECT_THAT(del(*last.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
