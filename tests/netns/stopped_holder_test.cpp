// SPDX-License-Identifier: MIT
// A process that is stopped while it holds a lock delays the others' calls, and they say who it is.
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "tests/netns/ctl_node.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <future>

namespace podlane::test {
namespace {

class StoppedHolderTest : public NodeTest {
  protected:
    [[nodiscard]] static Fd hold(const std::string &path, int flags) {
        Fd file(::open(path.c_str(), flags | O_CLOEXEC, 0600));
        if (!file || flock(file.get(), LOCK_EX) != 0)
            throw std::runtime_error("locking " + path);
        return file;
    }
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
    const std::string holder_ = std::to_string(getpid()) + " (";
};

// Shared, as of an ADD that is halfway; what is exclusive waits.
TEST_F(StoppedHolderTest, DelaysTheFirstAndTheLastOfANetworkAndRepair) {
    const Json changed_network = {{"name", "changed"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.40.0/24"}}}}}}}};
    const Pod last = make(), changed = make(changed_network);
    const auto first = node_.container();
    node_.run("ip route del " + changed.text4() + " dev " + changed.host_ifname);
    auto held = std::make_unique<Lock>(require(Lock::shared(node_.bpffs())));
    auto deleted = start("DEL", *last.container, Json::object());
    auto added = start("ADD", *first, others_);
    auto repaired = start(ctl_argv(node_.bpffs(), "repair"));
    for (auto *call : {&deleted, &added}) {
        const Reply reply = to_reply(call->get());
        EXPECT_THAT(reply, fails_with(11, {"locking " + node_.bpffs(), "held for 30 s", holder_}));
        EXPECT_THAT(reply.details(), testing::HasSubstr("kill -CONT " + std::to_string(getpid())));
    }
    const Output output = repaired.get();
    EXPECT_EQ(output.rc, 1) << output.out << output.err;
    EXPECT_THAT(output.out + output.err, has_all({"locking " + node_.bpffs(), holder_}));
    held.reset();
    EXPECT_THAT(del(*changed.container, changed_network), succeeds());
    EXPECT_THAT(del(*first, others_), succeeds());
    EXPECT_THAT(del(*last.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// The temporary file of a record, and a directory that is installed into.
TEST_F(StoppedHolderTest, DelaysWhoeverWritesTheSameRecordOrInstalls) {
    const Pod other = make();
    const auto container = node_.container();
    const std::string record =
        AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/." + container->id() + ":eth0";
    Fd held = hold(record, O_WRONLY | O_CREAT), held_directory = hold(bin(), O_RDONLY | O_DIRECTORY);
    auto added = start("ADD", *container, Json::object());
    auto installed =
        start(ctl_argv(node_.bpffs(), "install --subnets 198.18.1.0/24 --bin-dir " + bin() + " --conf-dir " + conf() +
                                          " --plugin " + std::getenv("PODLANE_BIN")));
    const Reply reply = to_reply(added.get());
    EXPECT_THAT(reply, fails_with(11, {"locking " + record, "held for 30 s", holder_}));
    EXPECT_THAT(reply.details(), testing::HasSubstr("kill -CONT " + std::to_string(getpid())));
    EXPECT_THAT(installed.get(), complains(1, {"locking " + bin(), "held for 30 s", holder_, "kill -CONT"}));
    held.reset();
    held_directory.reset();
    EXPECT_THAT(add(*container), succeeds());
    EXPECT_THAT(install(), prints(0));
    EXPECT_THAT(uninstall(), prints(0));
    for (const Container *one : {container.get(), other.container.get()})
        EXPECT_THAT(del(*one), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
