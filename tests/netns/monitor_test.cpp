// SPDX-License-Identifier: MIT
// podlanectl monitor: what it shows of real packets, what it leaves out, and that nobody is left watching.
#include "tests/harness/cluster.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/netns/lab.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <sstream>

namespace podlane::test {
namespace {

using testing::HasSubstr;

class MonitorTest : public testing::Test {
  protected:
    void SetUp() override {
        lab_.emplace();
        a_ = lab_->add_pod(Json{{"attach", "clsact"}});
        b_ = lab_->add_pod(Json{{"attach", "clsact"}});
        log_ = lab_->node().dir() + "/monitor.log";
    }
    // Started, and watching.
    Daemon watch(const std::vector<std::string> &arguments) {
        std::vector<std::string> argv{std::getenv("PODLANECTL_BIN"), "--bpffs", lab_->node().bpffs(), "monitor"};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        Daemon daemon(lab_->node().ns(), argv, log_);
        EXPECT_TRUE(wait_until([&] { return entry().mode != WATCH_NOTHING; })) << text();
        return daemon;
    }
    [[nodiscard]] struct watch entry() {
        return *require(require(open_watches(lab_->node().bpffs(), Access::read_only)).find(0));
    }
    [[nodiscard]] std::string text() const { return read_file(log_); }
    // The events so far.
    [[nodiscard]] std::vector<Json> events() const {
        std::vector<Json> all;
        std::istringstream lines(text());
        for (std::string line; std::getline(lines, line);)
            if (const Json one = Json::parse(line, nullptr, false); one.is_object())
                all.push_back(one);
        return all;
    }
    void send(const Packet &packet) { a_.wire().send(frame(a_.gateway_mac, a_.mac, packet)); }
    // A source that is not the pod's.
    [[nodiscard]] Packet stolen(std::uint16_t port) const { return udp({ip("198.51.100.9"), b_.v4, 4000, port}); }

    std::optional<Lab> lab_;
    Pod a_;
    Pod b_;
    std::string log_;
};

TEST_F(MonitorTest, ShowsDropsOnly) {
    Daemon monitor = watch({"--json", "--limit", "1"});
    send(udp({a_.v4, b_.v4}));
    send(stolen(99));
    monitor.wait();
    const auto all = events();
    ASSERT_EQ(all.size(), 1U) << text();
    EXPECT_EQ(all[0].at("reason"), "drop-source-address");
    EXPECT_EQ(all[0].at("kind"), "drop");
    EXPECT_EQ(all[0].at("interface"), a_.host_ifname);
    EXPECT_EQ(all[0].at("ifindex"), a_.ifindex);
    EXPECT_EQ(all[0].at("pod"), a_.container->id().substr(0, 12));
    EXPECT_EQ(all[0].at("direction"), "ingress");
    EXPECT_EQ(all[0].at("protocol"), "udp");
    EXPECT_EQ(all[0].at("source"), "198.51.100.9");
    EXPECT_EQ(all[0].at("source_port"), 4000);
    EXPECT_EQ(all[0].at("destination"), to_string(b_.v4));
    EXPECT_EQ(all[0].at("destination_port"), 99);
    EXPECT_EQ(all[0].at("bytes"), to_bytes(stolen(99)).size() + kEthernetBytes);
    EXPECT_EQ(entry().mode, static_cast<std::uint32_t>(WATCH_NOTHING)) << "nobody is left watching";
}

TEST_F(MonitorTest, ShowsWhatTheFilterSays) {
    Daemon monitor = watch({"--limit", "1", "udp port 99 and src net 198.51.100.0/24"});
    send(stolen(98));
    send(stolen(99));
    monitor.wait();
    EXPECT_THAT(text(), HasSubstr("drop-source-address"));
    EXPECT_THAT(text(), HasSubstr("udp 198.51.100.9:4000 > " + to_string(b_.v4) + ":99"));
    EXPECT_THAT(text(), testing::Not(HasSubstr(":98")));

    EXPECT_THAT(lab_->node().podlanectl(std::vector<std::string>{"monitor", "udp and and"}),
                complains(2, {"syntax error"}));
    EXPECT_EQ(entry().mode, static_cast<std::uint32_t>(WATCH_NOTHING));
}

TEST_F(MonitorTest, ShowsAllThatIsSampled) {
    Daemon monitor = watch({"--json", "--sample", "1", "--limit", "1", "--interface", a_.host_ifname, "udp port 7"});
    send(udp({a_.v4, b_.v4}));
    monitor.wait();
    ASSERT_EQ(events().size(), 1U) << text();
    EXPECT_EQ(events()[0].at("reason"), "sent-direct");
}

// The reader stands still while more comes than the buffer holds.
TEST_F(MonitorTest, SaysHowManyWereLost) {
    Daemon monitor = watch({"--json", "udp port 1"});
    const auto pid = static_cast<pid_t>(entry().pid);
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    const Wire wire = a_.wire();
    const Bytes bytes = frame(a_.gateway_mac, a_.mac, stolen(99));
    for (int i = 0; i < 4000; ++i)
        wire.send(bytes);
    EXPECT_TRUE(wait_until([&] { return entry().lost > 0; }));
    const std::uint64_t lost = entry().lost;
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    EXPECT_TRUE(wait_until([&] { return !events().empty(); })) << text();
    EXPECT_GE(events().at(0).at("lost"), lost);
    ASSERT_EQ(kill(pid, SIGINT), 0);
    monitor.wait();
    EXPECT_EQ(entry().mode, static_cast<std::uint32_t>(WATCH_NOTHING));
}

TEST_F(MonitorTest, EndsTheWatchOfOneThatDied) {
    {
        Daemon monitor = watch({"--json"});
        EXPECT_THAT(lab_->node().podlanectl("monitor --limit 1"), complains(1, {"watches already"}));
        ASSERT_EQ(kill(static_cast<pid_t>(entry().pid), SIGKILL), 0);
        monitor.wait();
    }
    EXPECT_EQ(entry().mode, static_cast<std::uint32_t>(WATCH_DROPS));
    EXPECT_TRUE(wait_until([&] {
        send(stolen(99));
        return entry().mode == WATCH_NOTHING;
    }));
    Daemon next = watch({"--json", "--limit", "1"});
    send(stolen(97));
    next.wait();
    EXPECT_EQ(events().at(0).at("destination_port"), 97) << "what lay there is not shown";
}

} // namespace
} // namespace podlane::test
