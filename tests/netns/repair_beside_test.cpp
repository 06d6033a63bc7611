// SPDX-License-Identifier: MIT
// podlanectl repair, or another pod's DEL after lost pins, beside a DEL of the pod that it restores: one of the two is
// held up in the middle.
#include "tests/netns/ctl.hpp"

#include <thread>

namespace podlane::test {
namespace {

class RepairBesideTest : public CtlTest {
  protected:
    const Json all_ = all_features();
    Output call_under(const std::string &command, const Container &container, std::vector<std::string> argv,
                      const Json &config) const {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}});
        return run(node_.ns(), argv, config.dump(), variables);
    }
    Output call_under(const std::string &command, const Container &container, std::vector<std::string> argv) const {
        return call_under(command, container, std::move(argv), node_.config(all_));
    }
    // Behind ptp, which has made the container's interface.
    [[nodiscard]] Json behind_ptp(const Container &container) const {
        Json config = node_.config(all_);
        const Json ptp = {{"cniVersion", "1.0.0"}, {"name", "pods"}, {"type", "ptp"}, {"ipam", node_.ipam()}};
        config["prevResult"] = succeeded(node_.cni("ADD", ptp, container)).json;
        config.erase("ipam");
        return config;
    }
    // How many times a DEL locks the maps' pins before the record on disk goes, in a run that nothing hits.
    [[nodiscard]] int locks_before_the_record_goes(const Container &container, const Json &config) const {
        const std::string file = node_.dir() + "/locks";
        EXPECT_EQ(call_under("DEL", container, words("strace -qq -y -e trace=flock,unlink -o " + file), config).rc, 0);
        int locks = 0, last = 0;
        std::ifstream trace(file);
        for (std::string line; std::getline(trace, line);) {
            locks += line.starts_with("flock(") && line.find('<' + node_.bpffs() + '>') != std::string::npos ? 1 : 0;
            last = line.find(container.id()) != std::string::npos ? locks : last;
        }
        return last;
    }
    // Holds a call up at the lock that is number `lock` of those.
    [[nodiscard]] std::vector<std::string> holding(int lock, std::chrono::microseconds time) const {
        return words("strace -qq -o /dev/null -P " + node_.bpffs() + " -e trace=flock -e inject=flock:delay_enter=" +
                     std::to_string(time.count()) + ":when=" + std::to_string(lock));
    }
};

// It waits for its IPAM plugin, with the record still there: by that the repair finds things missing, and restores
// them. The repair cannot see that the DEL is under way, because it looks for records elsewhere.
TEST_F(RepairBesideTest, ADelUnderWayRemovesWhatWasRestored) {
    const Pod other = make(all_);
    const std::string before = everything();
    const Tables tables = require(Tables::open(node_.bpffs()));
    Json elsewhere = all_;
    elsewhere["stateDir"] = node_.dir() + "/elsewhere";
    const Pod made = make(elsewhere);
    std::jthread deleting([&] {
        const Output done = call_under(
            "DEL", *made.container,
            {"strace", "-qq", "-e", "trace=pipe2", "-o", "/dev/null", "-e", "inject=pipe2:delay_enter=4000000:when=1"},
            node_.config(elsewhere));
        EXPECT_EQ(done.rc, 0) << done.out << done.err;
    });
    const auto is_gone = [&] { return !require(tables.interfaces.find(made.ifindex)) && host_link(made).is_null(); };
    EXPECT_TRUE(wait_until(is_gone));
    (void)ctl("repair");
    EXPECT_TRUE(require(tables.endpoints.find(require(make_endpoint_key(made.container->id(), "eth0")))))
        << "the DEL was to be under way";
    EXPECT_TRUE(require(tables.interfaces.find(made.ifindex))) << "the repair was to restore it";
    deleting.join();
    EXPECT_EQ(everything(), before);
    EXPECT_THAT(del(*other.container, all_), succeeds());
}

// Between a DEL's last two locks only the record on disk is left, beside an interface that the other plugin's DEL has
// still to remove: the repair takes it for one that lost its entries.
TEST_F(RepairBesideTest, ADelOfAnotherPluginsInterfaceRemovesWhatWasRestored) {
    const auto container = node_.container();
    const Json config = behind_ptp(*container);
    ASSERT_THAT(node_.cni("ADD", config, *container), succeeds());
    const int locks = locks_before_the_record_goes(*container, config);
    ASSERT_GT(locks, 1);
    const std::string before = everything();
    ASSERT_THAT(node_.cni("ADD", config, *container), succeeds());
    const std::uint32_t ifindex = observe(node_, container).ifindex;
    const Tables tables = require(Tables::open(node_.bpffs()));
    const auto is_known = [&] {
        return require(tables.endpoints.find(require(make_endpoint_key(container->id(), "eth0")))).has_value();
    };
    std::jthread deleting([&] {
        const Output done = call_under("DEL", *container, holding(locks, std::chrono::seconds(4)), config);
        EXPECT_EQ(done.rc, 0) << done.out << done.err;
    });
    EXPECT_TRUE(wait_until([&] { return !is_known(); }));
    EXPECT_THAT(node_.records(), Not(IsEmpty())) << "the DEL was to be under way";
    (void)ctl("repair");
    EXPECT_TRUE(is_known() && require(tables.interfaces.find(ifindex))) << "the repair was to restore it";
    deleting.join();
    EXPECT_EQ(everything(), before);
}

// The record is erased last of all: what a repair has restored meanwhile is not lost sight of.
TEST_F(RepairBesideTest, ADelThatIsKilledBehindTheRepairIsRepeated) {
    const Pod other = make(all_);
    const std::string before = everything();
    const Tables tables = require(Tables::open(node_.bpffs()));
    const std::string trace = node_.dir() + "/trace";
    // Returns the number of bpf(2) calls; the DEL is killed at one of them, unless `kill` is 0.
    const auto del_beside_repair = [&](int kill) {
        const Pod made = make(all_);
        std::vector<std::string> strace{
            "strace", "-qq", "-o", trace, "-e", "trace=pipe2,bpf", "-e", "inject=pipe2:delay_enter=1200000:when=1"};
        if (kill != 0)
            strace.insert(strace.end(), {"-e", "inject=bpf:signal=KILL:when=" + std::to_string(kill)});
        std::jthread deleting([&] { (void)call_under("DEL", *made.container, strace); });
        EXPECT_TRUE(wait_until([&] { return !require(tables.interfaces.find(made.ifindex)); }));
        (void)ctl("repair");
        deleting.join();
        EXPECT_THAT(del(*made.container, all_), succeeds());
        EXPECT_EQ(everything(), before) << "killed at call " << kill;
        std::ifstream lines(trace);
        int calls = 0;
        for (std::string line; std::getline(lines, line);)
            calls += line.starts_with("bpf(") ? 1 : 0;
        return calls;
    };
    const int calls = del_beside_repair(0);
    for (int kill = calls; kill > calls - 30; kill -= 3)
        (void)del_beside_repair(kill);
    EXPECT_THAT(del(*other.container, all_), succeeds());
}

// It restores a pod after lost pins, and is held up at one of its last insertions while that pod's DEL erases all that
// is there; this one is held up at its last lock until the restoring one has ended: record and interface are there for
// both.
TEST_F(RepairBesideTest, ADelLeavesNothingOfAPodWhoseDelDeletedItsFirstEntries) {
    const auto chained = node_.container();
    const Json config = behind_ptp(*chained);
    ASSERT_THAT(node_.cni("ADD", config, *chained), succeeds());
    const std::vector<std::string> hold =
        holding(locks_before_the_record_goes(*chained, config), std::chrono::seconds(2));
    ASSERT_THAT(node_.cni("ADD", config, *chained), succeeds()); // an interface that was never set up
    ASSERT_THAT(node_.cni("DEL", config, *chained), succeeds());
    const std::string before = everything();
    const std::string trace = node_.dir() + "/trace";
    // Returns which calls of bpf(2) insert something; the first DEL is held up at one of them, unless `held` is 0.
    const auto del_beside_del = [&](int held) {
        const Pod first = make(all_);
        EXPECT_THAT(node_.cni("ADD", config, *chained), succeeds());
        const std::uint32_t ifindex = observe(node_, chained).ifindex;
        fs::remove_all(node_.bpffs());
        std::vector<std::string> strace = words("strace -qq -e trace=bpf -o " + trace);
        if (held != 0)
            strace.insert(strace.end(), {"-e", "inject=bpf:delay_enter=1000000:when=" + std::to_string(held)});
        std::jthread restoring([&] { (void)call_under("DEL", *first.container, strace); });
        EXPECT_TRUE(wait_until([&] {
            const auto interfaces = open_interfaces(node_.bpffs(), Access::read_only);
            return interfaces && require(interfaces->find(ifindex));
        }));
        if (held == 0)
            restoring.join();
        std::jthread deleting([&] { (void)call_under("DEL", *chained, hold, config); });
        if (held != 0)
            restoring.join();
        deleting.join();
        EXPECT_EQ(everything(), before) << "held up at call " << held;
        std::vector<int> insertions;
        std::ifstream lines(trace);
        int calls = 0;
        for (std::string line; std::getline(lines, line); ++calls)
            if (line.starts_with("bpf(BPF_MAP_UPDATE_ELEM"))
                insertions.push_back(calls + 1);
        return insertions;
    };
    const std::vector<int> insertions = del_beside_del(0);
    ASSERT_GT(insertions.size(), 6U);
    for (auto held = insertions.end() - 4; held != insertions.end(); ++held)
        (void)del_beside_del(*held);
}

// It finds the pins lost, and restores the other pods that it has found: held up at its locks, from the one under which
// it loads the programs on. Meanwhile all of them are deleted; one of them leaves the interface, another plugin's.
TEST_F(RepairBesideTest, ADelRestoresNoPodThatIsDeletedMeanwhile) {
    const auto chained = node_.container();
    const Json config = behind_ptp(*chained);
    ASSERT_THAT(node_.cni("ADD", config, *chained), succeeds());
    ASSERT_THAT(node_.cni("DEL", config, *chained), succeeds());
    const std::string before = everything();
    const std::string trace = node_.dir() + "/trace";
    // Returns the numbers of the first lock under the root of the pins, and of the last one.
    const auto del_beside_dels = [&](int held) {
        const Pod first = make(all_);
        const Pod second = make(all_);
        EXPECT_THAT(node_.cni("ADD", config, *chained), succeeds());
        fs::remove_all(node_.bpffs());
        std::vector<std::string> strace{"strace", "-qq", "-y", "-e", "trace=flock", "-o", trace};
        if (held != 0)
            strace.insert(strace.end(), {"-e", "inject=flock:delay_enter=2000000:when=" + std::to_string(held)});
        std::atomic<bool> has_ended = false;
        std::jthread deleting([&] {
            const Output done = call_under("DEL", *first.container, strace);
            has_ended = true;
            EXPECT_EQ(done.rc, 0) << done.out << done.err;
            EXPECT_THAT(done.err, Not(HasSubstr(second.container->id() + ", eth0 has lost its entries")));
        });
        if (held == 0)
            deleting.join();
        else
            EXPECT_TRUE(wait_until([&] { return fs::exists(node_.bpffs()); }));
        EXPECT_EQ(has_ended, held == 0) << "the DEL was to be under way";
        EXPECT_THAT(del(*second.container, all_), succeeds());
        EXPECT_THAT(node_.cni("DEL", config, *chained), succeeds());
        if (held != 0)
            deleting.join();
        EXPECT_EQ(everything(), before) << "held up at lock " << held;
        std::ifstream lines(trace);
        std::pair<int, int> locks{0, 0};
        for (std::string line; std::getline(lines, line); ++locks.second)
            locks.first += locks.first == 0 && line.find(node_.bpffs()) != std::string::npos ? locks.second + 1 : 0;
        return locks;
    };
    const auto [loading, last] = del_beside_dels(0);
    ASSERT_GT(loading, 0);
    for (int held = loading; held <= last; held += 3)
        (void)del_beside_dels(held);
}

} // namespace
} // namespace podlane::test
