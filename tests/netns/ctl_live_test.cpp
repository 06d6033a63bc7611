// SPDX-License-Identifier: MIT
// podlanectl monitor: what it shows of real packets, what it leaves out, and that nobody is left watching.
// podlanectl top on a terminal: draws, sorts, follows the window's size, and leaves the terminal as it was.
#include "tests/harness/cluster.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/netns/lab.hpp"

#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <utmp.h>

namespace podlane::test {
namespace {

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
    EXPECT_THAT(all[0], has_members({{"reason", "drop-source-address"},
                                     {"kind", "drop"},
                                     {"interface", a_.host_ifname},
                                     {"ifindex", a_.ifindex},
                                     {"pod", a_.container->id().substr(0, 12)},
                                     {"direction", "ingress"},
                                     {"protocol", "udp"},
                                     {"source", "198.51.100.9"},
                                     {"source_port", 4000},
                                     {"destination", to_string(b_.v4)},
                                     {"destination_port", 99},
                                     {"bytes", to_bytes(stolen(99)).size() + kEthernetBytes}}));
    EXPECT_EQ(entry().mode, static_cast<std::uint32_t>(WATCH_NOTHING)) << "nobody is left watching";
}

TEST_F(MonitorTest, ShowsWhatTheFilterSays) {
    Daemon monitor = watch({"--limit", "1", "udp port 99 and src net 198.51.100.0/24"});
    send(stolen(98));
    send(stolen(99));
    monitor.wait();
    EXPECT_THAT(text(), has_all({"drop-source-address", "udp 198.51.100.9:4000 > " + to_string(b_.v4) + ":99"}));
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

TEST_F(MonitorTest, ShowsWhatIsolationDrops) {
    const Pod isolated = lab_->add_pod(Json{{"groups", {"name:tenant-a"}}, {"isolation", "group"}});
    Daemon monitor = watch({"--json", "--limit", "1"});
    send(udp({a_.v4, isolated.v4, 4000, 99}));
    monitor.wait();
    ASSERT_EQ(events().size(), 1U) << text();
    EXPECT_THAT(events()[0], has_members({{"reason", "drop-isolation"},
                                          {"interface", isolated.host_ifname},
                                          {"source", to_string(a_.v4)},
                                          {"destination", to_string(isolated.v4)},
                                          {"destination_port", 99}}));
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

class Terminal {
  public:
    Terminal(const net::Namespace &where, const std::string &bpffs, unsigned short rows) {
        winsize size{rows, 100, 0, 0};
        int master = -1;
        int slave = -1;
        if (openpty(&master, &slave, nullptr, nullptr, &size) != 0)
            throw std::runtime_error("openpty");
        master_ = Fd(master);
        slave_ = Fd(slave);
        tcgetattr(slave, &before_);
        const auto inside = require(net::enter(where));
        pid_ = fork();
        if (pid_ != 0)
            return;
        login_tty(slave);
        const std::string program = std::getenv("PODLANECTL_BIN");
        setenv("TERM", "xterm", 1);
        execl(program.c_str(), program.c_str(), "--bpffs", bpffs.c_str(), "top", nullptr);
        _exit(127);
    }
    ~Terminal() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;

    void press(const std::string &keys) const {
        ASSERT_EQ(write(master_.get(), keys.data(), keys.size()), ssize_t(keys.size()));
    }
    void resize(unsigned short rows, unsigned short columns) const {
        const winsize size{rows, columns, 0, 0};
        ASSERT_EQ(ioctl(master_.get(), TIOCSWINSZ, &size), 0);
    }
    // The output since the last whole picture began.
    [[nodiscard]] bool shows(const std::function<bool(const std::string &)> &wanted) {
        return wait_until([&] {
            pollfd one{master_.get(), POLLIN, 0};
            std::array<char, 4096> buffer{};
            while (poll(&one, 1, 50) == 1) {
                const ssize_t got = read(master_.get(), buffer.data(), buffer.size());
                if (got <= 0)
                    break;
                all_.append(buffer.data(), static_cast<std::size_t>(got));
            }
            return wanted(picture());
        });
    }
    [[nodiscard]] std::string picture() const {
        // The last one that is whole.
        const std::size_t end = all_.rfind("\033[J");
        const std::size_t begin = end == std::string::npos ? end : all_.rfind("\033[H", end);
        return begin == std::string::npos ? "" : all_.substr(begin, end - begin);
    }
    [[nodiscard]] const std::string &all() const { return all_; }
    int wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = 0;
        static_cast<void>(shows([](const std::string &) { return true; }));
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    [[nodiscard]] bool is_as_before() const {
        termios now{};
        tcgetattr(slave_.get(), &now);
        return now.c_lflag == before_.c_lflag;
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    Fd master_;
    Fd slave_;
    pid_t pid_ = 0;
    termios before_{};
    std::string all_;
};

class TopTest : public testing::Test {
  protected:
    void SetUp() override {
        lab_.emplace();
        for (int i = 0; i < 3; ++i)
            pods_.push_back(lab_->add_pod(Json{{"attach", "clsact"}}));
    }
    // The picture has the pods in this order.
    static bool is_before(const std::string &picture, const Pod &first, const Pod &second) {
        const std::size_t at = picture.find(first.host_ifname);
        const std::size_t then = picture.find(second.host_ifname);
        return at != std::string::npos && then != std::string::npos && at < then;
    }
    std::optional<Lab> lab_;
    std::vector<Pod> pods_;
};

TEST_F(TopTest, DrawsSortsResizesAndQuits) {
    Terminal terminal(lab_->node().ns(), lab_->node().bpffs(), 24);
    const Pod &busy = pods_[1];
    const Wire wire = busy.wire();
    const Bytes bytes = frame(busy.gateway_mac, busy.mac, udp({busy.v4, pods_[2].v4}, 1000));
    const auto busily = [&](auto condition) {
        return terminal.shows([&](const std::string &picture) {
            for (int i = 0; i < 200; ++i)
                wire.send(bytes);
            return condition(picture);
        });
    };
    EXPECT_TRUE(busily([&](const std::string &picture) {
        return picture.find("bit/s") != std::string::npos && is_before(picture, busy, pods_[0]);
    })) << terminal.picture();
    EXPECT_THAT(terminal.picture(), HasSubstr("3 endpoints by traffic"));
    terminal.press("r");
    EXPECT_TRUE(busily([&](const std::string &picture) {
        return picture.find("reversed") != std::string::npos && is_before(picture, pods_[0], busy);
    })) << terminal.picture();
    terminal.press("r>");
    EXPECT_TRUE(terminal.shows([](const std::string &p) { return p.find("by from-pod ") != std::string::npos; }));
    terminal.resize(4, 40);
    EXPECT_TRUE(terminal.shows([](const std::string &picture) { return std::ranges::count(picture, '\n') == 3; }))
        << terminal.picture();
    terminal.resize(24, 100);
    EXPECT_TRUE(terminal.shows([](const std::string &picture) { return std::ranges::count(picture, '\n') >= 5; }))
        << terminal.picture();
    EXPECT_FALSE(terminal.is_as_before());
    terminal.press("q");
    EXPECT_EQ(terminal.wait(), 0);
    EXPECT_TRUE(terminal.is_as_before());
    EXPECT_TRUE(terminal.all().ends_with("\033[?25h\033[?1049l")) << "the other screen is left";
}

TEST_F(TopTest, LeavesTheTerminalAsItWasOnASignal) {
    Terminal terminal(lab_->node().ns(), lab_->node().bpffs(), 24);
    ASSERT_TRUE(terminal.shows([](const std::string &picture) { return !picture.empty(); }));
    ASSERT_EQ(kill(terminal.pid(), SIGTERM), 0);
    EXPECT_EQ(terminal.wait(), 0);
    EXPECT_TRUE(terminal.is_as_before());
    EXPECT_TRUE(terminal.all().ends_with("\033[?1049l"));
}

TEST_F(TopTest, PrintsOnceWithoutATerminal) {
    const std::string ctl = std::getenv("PODLANECTL_BIN");
    const Json all = Json::parse(lab_->node().run(ctl + " --json --bpffs " + lab_->node().bpffs() + " top"));
    ASSERT_EQ(all.size(), 3U);
    EXPECT_TRUE(all[0].contains("from_pod_bits_per_s")) << all;
    EXPECT_THAT(run(lab_->node().ns(), {ctl, "--bpffs", lab_->node().bpffs(), "top", "--sort", "size"}),
                complains(2, {"orders: pod, traffic"}));
}

} // namespace
} // namespace podlane::test
