// SPDX-License-Identifier: MIT
// Any number of calls at once, the very first ones of a node too: all succeed, and nothing is left.
//
// PODLANE_PODS=1000 makes 250 pods at once and ten rounds of 1,000, rather than one of 20.
#include "tests/netns/verbs.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

constexpr std::size_t kAtOnce = 20;

std::size_t pods() {
    const char *wanted = std::getenv("PODLANE_PODS");
    return wanted == nullptr ? kAtOnce : std::stoul(wanted);
}

class ParallelTest : public VerbsTest {
  protected:
    // Calls `work` for each number at once.
    template <typename Work> static void at_once(std::size_t count, const Work &work) {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < count; ++i)
            threads.emplace_back([&work, i] { work(i); });
        for (std::thread &thread : threads)
            thread.join();
    }
    void make_containers(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            containers_.push_back(node_.container());
    }
    void all_at_once(const char *verb) {
        replies_.resize(containers_.size());
        at_once(containers_.size(),
                [&](std::size_t i) { replies_[i] = node_.cni(verb, node_.config(), *containers_[i]); });
        for (const Reply &reply : replies_)
            ASSERT_EQ(reply.rc, 0) << verb << ": " << reply;
    }
    // A runtime's ADD that is killed at some moment, and tried again.
    [[nodiscard]] Reply add_after_kill(const Container &container, const Json &keys, std::size_t number) const {
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        const std::string seconds = "0.0" + std::to_string(number % 30 + 10);
        const Output killed = run(node_.ns(), {"timeout", "-s", "KILL", seconds, node_.plugins() + "/podlane"},
                                  node_.config(keys).dump(), variables);
        if (killed.rc == 0)
            return {0, killed.out, killed.err, {}};
        Reply reply = add(container, keys);
        if (reply.rc != 0 && reply.code() == 104) { // all was done when it was killed
            EXPECT_THAT(del(container, keys), succeeds());
            reply = add(container, keys);
        }
        return reply;
    }
    // As runtimes do: with and without the namespace, twice, and without saying where it is.
    void remove_somehow(Container &container, const Json &keys, std::size_t number) const {
        if (number % 4 == 1)
            container.remove_namespace();
        EXPECT_THAT(del(container, keys, number % 4 == 3 ? Variables{{"CNI_NETNS", ""}} : Variables{}), succeeds());
        if (number % 4 == 2) {
            EXPECT_THAT(del(container, keys), succeeds());
        }
    }
    [[nodiscard]] std::size_t endpoints() const { return size_of(&open_endpoints); }

    std::vector<std::shared_ptr<Container>> containers_;
    std::vector<Reply> replies_;
};

TEST_F(ParallelTest, FirstAddsAndLastDelsSucceed) {
    const std::size_t count = std::min<std::size_t>(pods(), 250);
    make_containers(count);
    const std::string before = node_.state();
    all_at_once("ADD");
    EXPECT_EQ(endpoints(), count);
    std::set<std::uint32_t> loaded;
    for (std::size_t i = 0; i < count; ++i) {
        const Pod made = look_at(containers_[i], replies_[i].json);
        EXPECT_EQ(check(made).rc, 0) << check(made);
        for (const Attached &one : programs(made.ifindex, Hook::ingress))
            loaded.insert(one.program_id);
    }
    EXPECT_EQ(loaded.size(), 1U) << "loaded more than once";
    EXPECT_TRUE(ping(containers_.front()->ns(), look_at(containers_.back(), replies_.back().json).text4()));
    all_at_once("DEL");
    EXPECT_EQ(node_.state(), before);
}

// As after a boot without anything mounted on /sys/fs/bpf: the plugin mounts it, once.
TEST_F(ParallelTest, FirstAddsMountTheBpffsOnce) {
    ASSERT_EQ(umount2("/sys/fs/bpf", MNT_DETACH), 0); // the test's own mount, in its own mount namespace
    std::size_t lower = 0;
    while (run(node_.ns(), {"stat", "-f", "-c", "%T", "/sys/fs/bpf"}).out.find("bpf") != std::string::npos &&
           lower++ < 8)
        ASSERT_EQ(umount2("/sys/fs/bpf", MNT_DETACH), 0);
    make_containers(kAtOnce / 2);
    all_at_once("ADD");
    EXPECT_EQ(endpoints(), kAtOnce / 2);
    const std::string mounts = run(node_.ns(), {"grep", "-c", " /sys/fs/bpf bpf ", "/proc/self/mounts"}).out;
    EXPECT_EQ(mounts, "1\n");
    all_at_once("DEL");
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(ParallelTest, MixedAddsAndDelsSucceed) {
    make_containers(kAtOnce);
    const std::string before = node_.state();
    at_once(kAtOnce, [&](std::size_t i) {
        for (int round = 0; round < 3; ++round) {
            EXPECT_THAT(add(*containers_[i]), succeeds());
            EXPECT_THAT(del(*containers_[i]), succeeds());
        }
    });
    EXPECT_EQ(node_.state(), before);
}

// In long runs a tenth of the ADDs is killed, which not every IPAM plugin survives without losing a lease.
TEST_F(ParallelTest, RoundsOfPodsLeaveNothing) {
    constexpr std::size_t kWorkers = 16;
    const Json keys = {{"ipMasq", true},
                       {"ipamTimeout", 300}, // 16 wait for the lock of host-local, which reads all leases under it
                       {"ipam", {{"ranges", {{{{"subnet", "198.19.0.0/16"}}}, {{{"subnet", "2001:db8:19::/64"}}}}}}}};
    const Pod lives = make(keys); // and its network
    const std::string before = everything();
    for (int round = 0; round < (pods() == kAtOnce ? 1 : 10) && !HasFailure(); ++round) {
        make_containers(pods());
        const auto each = [&](const std::function<void(std::size_t)> &work) {
            at_once(kWorkers, [&](std::size_t worker) {
                for (std::size_t i = worker; i < containers_.size(); i += kWorkers)
                    work(i);
            });
        };
        each([&](std::size_t i) {
            const bool is_killed = pods() != kAtOnce && i % 10 == 0;
            EXPECT_THAT(is_killed ? add_after_kill(*containers_[i], keys, i / 10) : add(*containers_[i], keys),
                        succeeds());
        });
        EXPECT_EQ(endpoints(), pods() + 1);
        each([&](std::size_t i) { remove_somehow(*containers_[i], keys, i); });
        containers_.clear();
        (void)wait_until([&] { return everything() == before; }); // interfaces of a lost namespace
        EXPECT_EQ(everything(), before);
    }
}

// Two networks come and go: the entry of one is not lost to the other's last DEL.
TEST_F(ParallelTest, NetworksComeAndGo) {
    make_containers(kAtOnce);
    at_once(kAtOnce, [&](std::size_t i) {
        const Json keys = {{"name", i % 2 == 0 ? "even" : "odd"},
                           {"ipam", {{"ranges", {{{{"subnet", i % 2 == 0 ? "198.18.20.0/24" : "198.18.21.0/24"}}}}}}}};
        for (int round = 0; round < 2; ++round) {
            const Reply added = add(*containers_[i], keys);
            EXPECT_EQ(added.rc, 0) << added;
            Json with_result = keys;
            with_result["prevResult"] = added.json;
            EXPECT_THAT(node_.cni("CHECK", node_.config(with_result), *containers_[i]), succeeds());
            EXPECT_EQ(del(*containers_[i], keys).rc, 0);
        }
    });
    EXPECT_EQ(size_of(&open_networks), 0U);
}

// One attachment asked for by many at once: one gets it, and its interface stays whole.
TEST_F(ParallelTest, OneOfManyAddsOfTheSameAttachmentSucceeds) {
    auto container = node_.container();
    (void)make();
    std::vector<Reply> replies(8);
    at_once(replies.size(), [&](std::size_t i) { replies[i] = add(*container); });
    const auto made = std::ranges::count_if(replies, [](const Reply &reply) { return reply.rc == 0; });
    EXPECT_EQ(made, 1);
    for (const Reply &reply : replies) {
        if (reply.rc != 0)
            continue;
        const Pod whole = look_at(container, reply.json);
        EXPECT_EQ(check(whole).rc, 0) << check(whole);
    }
    EXPECT_EQ(endpoints(), 2U);
    EXPECT_EQ(del(*container).rc, 0);
}

} // namespace
} // namespace podlane::test
