// SPDX-License-Identifier: MIT
// podlanectl repair beside an ADD or DEL of the same pod, each of them held up in the middle.
#include "tests/netns/ctl.hpp"

#include <thread>

namespace podlane::test {
namespace {

class RepairBesideTest : public CtlTest {
  protected:
    const Json all_ = all_features();
    const std::string trace_ = node_.dir() + "/trace";

    // The numbers, among all bpf(2), of the calls with these words.
    [[nodiscard]] std::vector<int> numbers_of(const std::string &words) const {
        std::ifstream file(trace_);
        std::vector<int> numbers;
        int number = 0;
        for (std::string line; std::getline(file, line);) {
            number += line.starts_with("bpf(") ? 1 : 0;
            if (line.find(words) != std::string::npos)
                numbers.push_back(number);
        }
        if (numbers.empty())
            throw std::runtime_error("no " + words);
        return numbers;
    }
    // The traced program waits for two seconds before ("enter") or after ("exit") that call.
    [[nodiscard]] static std::vector<std::string> waiting(const std::string &when, int number) {
        const std::string what = "inject=bpf:delay_" + when + "=2000000:when=" + std::to_string(number);
        return {"strace", "-qq", "-e", "trace=bpf", "-o", "/dev/null", "-e", what};
    }
    [[nodiscard]] std::vector<std::string> traced() const { return {"strace", "-qq", "-e", "trace=bpf", "-o", trace_}; }
    Output repair_under(std::vector<std::string> argv) const {
        std::ranges::copy(ctl_argv(node_.bpffs(), "repair"), std::back_inserter(argv));
        return run(node_.ns(), argv);
    }
    Output call_under(const std::string &command, const Container &container, std::vector<std::string> argv) const {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}});
        return run(node_.ns(), argv, node_.config(all_).dump(), variables);
    }
};

// Entries that it put back would stay for ever: no record says any more whose they are.
TEST_F(RepairBesideTest, ADelThatOvertakesIt) {
    const Pod other = make(all_); // so that the network stays
    const std::string before = everything();
    const Tables tables = require(Tables::open(node_.bpffs()));
    struct Case {
        std::string what;
        std::function<bool(const Pod &)> remove, is_back;
    };
    const std::vector<Case> cases = {{"counters",
                                      [&](const Pod &p) { return require(tables.counters.remove(p.ifindex)); },
                                      [&](const Pod &p) { return !require(tables.counters.find(p.ifindex)).empty(); }},
                                     {"an address",
                                      [&](const Pod &p) {
                                          return require(tables.addresses.remove({network_id("pods"), p.v4}));
                                      },
                                      [&](const Pod &p) {
                                          return require(tables.addresses.find({network_id("pods"), p.v4})).has_value();
                                      }}};
    for (const Case &one : cases) {
        SCOPED_TRACE(one.what);
        const Pod made = make(all_);
        ASSERT_TRUE(one.remove(made));
        ASSERT_EQ(repair_under(traced()).rc, 0);
        ASSERT_TRUE(one.remove(made));
        std::jthread repair([&] { (void)repair_under(waiting("exit", numbers_of("BPF_MAP_UPDATE_ELEM").front())); });
        EXPECT_TRUE(wait_until([&] { return one.is_back(made); }));
        EXPECT_THAT(del(*made.container, all_), succeeds());
        repair.join();
        EXPECT_EQ(everything(), before);
    }
    EXPECT_THAT(del(*other.container, all_), succeeds());
}

// It waits for its IPAM plugin, with the record still there: by that the repair finds things missing, and puts them
// back.
TEST_F(RepairBesideTest, ADelUnderWay) {
    const Pod other = make(all_);
    const std::string before = everything();
    const Tables tables = require(Tables::open(node_.bpffs()));
    const Pod made = make(all_);
    std::jthread deleting([&] {
        const Output done = call_under(
            "DEL", *made.container,
            {"strace", "-qq", "-e", "trace=pipe2", "-o", "/dev/null", "-e", "inject=pipe2:delay_enter=3000000:when=1"});
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

// What it would find missing is on its way.
TEST_F(RepairBesideTest, AnAddUnderWay) {
    const auto first = node_.container();
    const Output whole = call_under("ADD", *first, traced());
    ASSERT_EQ(whole.rc, 0) << whole.out;
    const auto container = node_.container();
    std::jthread adding([&] {
        const Output made = call_under("ADD", *container, waiting("exit", numbers_of("BPF_NOEXIST").front()));
        EXPECT_EQ(made.rc, 0) << made.out << made.err;
    });
    const Tables tables = require(Tables::open(node_.bpffs()));
    const endpoint_key key = require(make_endpoint_key(container->id(), "eth0"));
    EXPECT_TRUE(wait_until([&] { return require(tables.endpoints.find(key)).has_value(); }));
    EXPECT_THAT(ctl("repair"), prints(0));
    adding.join();
    EXPECT_THAT(ctl("doctor"), prints(0));
    for (const auto &one : {first, container})
        EXPECT_THAT(del(*one, all_), succeeds());
}

} // namespace
} // namespace podlane::test
