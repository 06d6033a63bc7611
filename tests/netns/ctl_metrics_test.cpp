// SPDX-License-Identifier: MIT
// podlanectl metrics: what promtool and Prometheus themselves take, with the values podlanectl shows elsewhere.
#include "tests/netns/ctl.hpp"
#include "tests/harness/environment.hpp"

#include <regex>

namespace podlane::test {
namespace {

constexpr const char *kListen = "127.0.0.1:9632";

// A program that runs until it is ended.
class Background {
  public:
    Background(const net::Namespace &where, std::vector<std::string> argv, const std::string &pid_file)
        : pid_file_(pid_file) {
        argv.insert(argv.begin(),
                    {"sh", "-c",
                     "echo $$ > " + pid_file + ".new && mv " + pid_file + ".new " + pid_file + " && exec \"$@\"",
                     "sh"});
        thread_ = std::thread([this, &where, argv] { output_ = run(where, argv); });
        wait_until([&] { return std::filesystem::exists(pid_file_); });
    }
    ~Background() {
        if (thread_.joinable())
            (void)end(SIGKILL);
    }
    Output end(int signal) {
        pid_t pid = 0;
        std::ifstream(pid_file_) >> pid;
        if (pid > 0)
            kill(pid, signal);
        thread_.join();
        return output_;
    }

  private:
    std::string pid_file_;
    std::thread thread_;
    Output output_;
};

class MetricsTest : public CtlTest {
  protected:
    [[nodiscard]] Output get(const std::string &url, const std::string &accept = "*/*") const {
        return run(node_.ns(), {"python3", "-c",
                                "import sys, urllib.request as u\n"
                                "a = u.urlopen(u.Request(sys.argv[1], headers={'Accept': sys.argv[2]}), timeout=60)\n"
                                "print(a.headers['Content-Type'])\n"
                                "print(a.read().decode(), end='')",
                                url, accept});
    }
    [[nodiscard]] Background serve() const {
        return Background(node_.ns(), ctl_argv(node_.bpffs(), std::string("metrics --listen ") + kListen),
                          node_.dir() + "/pid");
    }
    [[nodiscard]] std::string url() const { return std::string("http://") + kListen + "/metrics"; }
    [[nodiscard]] std::string server_pid() const {
        std::string pid;
        std::getline(std::ifstream(node_.dir() + "/pid"), pid);
        return pid;
    }
    // All lines but those of headers: name and labels, without the value.
    [[nodiscard]] static std::set<std::string> samples(const std::string &text) {
        std::set<std::string> found;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);)
            if (line.starts_with("podlane_"))
                found.insert(line.substr(0, line.rfind(' ')));
        return found;
    }
    // Two pods that have spoken, one with a limit, and a call that failed.
    void use_the_node() {
        const Pod web =
            make({{"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}},
                 named("shop", "web-0"));
        const Pod db = make(Json::object(), named("shop", "db-\"0\""));
        EXPECT_TRUE(ping(web.container->ns(), db.text4(), 3));
        EXPECT_NE(add(*web.container).rc, 0);
        web_ = web.container;
        db_ = db.container;
    }
    std::shared_ptr<Container> web_, db_;
};

TEST_F(MetricsTest, PassPromtool) {
    use_the_node();
    const Output text = ctl("metrics");
    ASSERT_EQ(text.rc, 0) << text.err;
    const Output checked = run(node_.ns(), {"promtool", "check", "metrics"}, text.out);
    EXPECT_EQ(checked.rc, 0) << checked.out << checked.err << text.out;
    EXPECT_EQ(checked.out + checked.err, "");
}

TEST_F(MetricsTest, SayWhatTheOtherCommandsSay) {
    use_the_node();
    const std::string text = ctl("metrics").out;
    const Json counted = find(ctl_json("counter list shop/web-0"), "reason", "host-unconfirmed");
    ASSERT_TRUE(counted.is_object());
    EXPECT_THAT(text, testing::ContainsRegex("podlane_endpoint_packets_total\\{namespace=\"shop\",pod=\"web-0\",[^}]*"
                                             "network=\"pods\",kind=\"host\",reason=\"host-unconfirmed\"\\} " +
                                             counted.at("packets").dump() + "\n"));
    EXPECT_THAT(text, HasSubstr("pod=\"db-\\\"0\\\"\"")) << "a label's quotes are escaped";
    EXPECT_THAT(text, has_all({"podlane_endpoints{network=\"pods\"} 2\n", "direction=\"ingress\"} 1000000\n",
                               "podlane_map_entries{map=\"endpoints_v1\"} 2\n", "podlane_flows{translated=\"yes\"} 0\n",
                               "podlane_uplink_programs{interface=\"up0\"} 1\n",
                               "podlane_cni_duration_seconds_count{verb=\"ADD\",outcome=\"ok\"} 2\n",
                               "podlane_cni_duration_seconds_count{verb=\"ADD\",outcome=\"failed\"} 1\n",
                               "podlane_cni_duration_seconds_bucket{verb=\"ADD\",outcome=\"ok\",le=\"+Inf\"} 2\n"}));
}

TEST_F(MetricsTest, ANodeWithoutPodsIsNoError) { EXPECT_THAT(ctl("metrics"), prints(0, {"podlane_loaded 0\n"})); }

TEST_F(MetricsTest, AreServedInTheRequestedFormat) {
    use_the_node();
    Background server = serve();
    ASSERT_TRUE(wait_until([&] { return get(url()).rc == 0; }));
    const std::string plain = get(url()).out;
    EXPECT_THAT(plain, has_all({"text/plain; version=0.0.4", "# TYPE podlane_endpoint_packets_total counter\n"}));
    const std::string open = get(url(), "application/openmetrics-text; version=1.0.0").out;
    EXPECT_THAT(open,
                has_all({"application/openmetrics-text; version=1.0.0", "# TYPE podlane_endpoint_packets counter\n"}));
    EXPECT_TRUE(open.ends_with("# EOF\n"));
    EXPECT_THAT(get(std::string("http://") + kListen + "/other").err, HasSubstr("404"));
    EXPECT_EQ(server.end(SIGTERM).rc, 0);
}

TEST_F(MetricsTest, AreServedBesideClientsThatNeverFinish) {
    Background server = serve();
    ASSERT_TRUE(wait_until([&] { return get(url()).rc == 0; }));
    const Output done = run(node_.ns(), {"python3", "-c",
                                         "import socket, sys, time, urllib.request as u\n"
                                         "host, port = sys.argv[1].split(':')\n"
                                         "open_one = lambda: socket.create_connection((host, int(port)))\n"
                                         "crowd = [open_one() for _ in range(100)]\n"
                                         "for one in crowd: one.send(b'G')\n"
                                         "u.urlopen('http://' + sys.argv[1] + '/metrics', timeout=20).read()\n"
                                         "slow = open_one()\n"
                                         "end = time.monotonic() + 20\n"
                                         "try:\n"
                                         "    while time.monotonic() < end:\n"
                                         "        slow.send(b'G'); time.sleep(0.1)\n"
                                         "except OSError: print('disconnected')\n",
                                         kListen});
    EXPECT_EQ(done.out, "disconnected\n") << done.err;
    EXPECT_EQ(server.end(SIGINT).rc, 0);
}

// Its clients reach the server; the other process, only the server's two queries.
TEST_F(MetricsTest, AreServedWithoutOtherCapabilitiesThanTheyNeed) {
    use_the_node();
    Background server = serve();
    ASSERT_TRUE(wait_until([&] { return get(url()).rc == 0; }));
    const std::string pid = server_pid();
    const std::string other = node_.run("cat /proc/" + pid + "/task/" + pid + "/children");
    EXPECT_EQ(other.find(' '), other.size() - 1) << "one process: " << other;
    for (const auto &[process, capability] : {std::pair{pid, "0000008000000000\n"}, {other, "0000000000001000\n"}}) {
        const std::string status = node_.run("cat /proc/" + process.substr(0, process.find(' ')) + "/status");
        for (const std::string set : {"CapEff:\t", "CapPrm:\t"}) // CAP_BPF; CAP_NET_ADMIN
            EXPECT_THAT(status, HasSubstr(set + capability));
        EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
        if (process == pid) {
            EXPECT_THAT(status, HasSubstr("Seccomp:\t2\n"));
        }
    }
    std::set<std::string> served, printed;
    EXPECT_TRUE(wait_until([&] { // A reason appears with its first packet, perhaps between the two.
        served = samples(get(url()).out);
        printed = samples(ctl("metrics").out);
        return served == printed;
    })) << "nothing that a process of root says is missing: "
        << testing::PrintToString(served) << testing::PrintToString(printed);
    EXPECT_EQ(server.end(SIGTERM).rc, 0);
    EXPECT_FALSE(std::filesystem::exists("/proc/" + other.substr(0, other.find(' '))));
}

TEST_F(MetricsTest, TheServerEndsWithTheProcessThatQueriesForIt) {
    Background server = serve();
    ASSERT_TRUE(wait_until([&] { return get(url()).rc == 0; }));
    const std::string pid = server_pid();
    node_.run("kill -KILL " + node_.run("cat /proc/" + pid + "/task/" + pid + "/children"));
    EXPECT_TRUE(wait_until([&] { return get(url()).rc != 0; }));
    EXPECT_THAT(server.end(SIGTERM), complains(1, {"the process that queries with CAP_NET_ADMIN has ended"}));
}

class MetricsOfUplinks : public MetricsTest, public testing::WithParamInterface<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
    }
};

TEST_P(MetricsOfUplinks, AreServedAsUplinksComeAndGo) {
    const Pod pod = make(
        {{"attach", GetParam()}, {"uplinks", {"up*"}}, {"egress", "cluster"}, {"clusterCIDRs", {"198.18.0.0/16"}}});
    Background server = serve();
    ASSERT_TRUE(wait_until([&] { return get(url()).rc == 0; }));
    const auto says = [&](const std::string &sample) {
        return wait_until([&] { return get(url()).out.find("\n" + sample + "\n") != std::string::npos; });
    };
    EXPECT_TRUE(says("podlane_uplink_programs{interface=\"up0\"} 1"));
    EXPECT_TRUE(says("podlane_network_egress_drops_total{network=\"pods\"} 0"));
    EXPECT_FALSE(ping(pod.ns(), "203.0.113.1"));
    EXPECT_TRUE(says("podlane_network_egress_drops_total{network=\"pods\"} 1"));
    node_.run("ip link add up1 type veth peer name other1");
    EXPECT_THAT(ctl("uplink sync"), prints(0));
    EXPECT_TRUE(says("podlane_uplink_programs{interface=\"up1\"} 1"));
    {
        const auto inside = require(net::enter(node_.ns()));
        EXPECT_TRUE(require(detach(uplink_ifindex(), Hook::egress)));
    }
    EXPECT_TRUE(says("podlane_uplink_programs{interface=\"up0\"} 0"));
    node_.run("ip link del up1");
    EXPECT_THAT(ctl("uplink sync"), prints(0));
    EXPECT_TRUE(says("podlane_uplink_programs{interface=\"up0\"} 1"));
    EXPECT_THAT(get(url()).out, Not(HasSubstr("{interface=\"up1\"}")));
    EXPECT_EQ(server.end(SIGTERM).rc, 0);
}

INSTANTIATE_TEST_SUITE_P(Hooks, MetricsOfUplinks, testing::Values("tcx", "clsact"),
                         [](const auto &hook) { return hook.param; });

TEST_F(MetricsTest, AWrongAddressIsAUsageError) {
    for (const std::string listen :
         {"9632", "localhost:9632", "::1:9632", "127.0.0.1:99999", "[::ffff:127.0.0.1]:9632"}) {
        EXPECT_THAT(ctl("metrics --listen " + listen), complains(2, {"is not ADDR:PORT\nhint: "})) << listen;
    }
    EXPECT_THAT(ctl("metrics --listen 192.0.2.99:9632").err, HasSubstr("listening on 192.0.2.99:9632: "));
}

// Prometheus itself, which asks for OpenMetrics.
TEST_F(MetricsTest, AreScrapedByPrometheus) {
    use_the_node();
    Background server = serve();
    const std::string dir = node_.dir() + "/prometheus";
    std::filesystem::create_directory(dir);
    std::ofstream(dir + "/config.yml") << "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: podlane\n"
                                          "  static_configs: [{targets: ['"
                                       << kListen << "']}]\n";
    Background prometheus(node_.ns(),
                          {"prometheus", "--config.file=" + dir + "/config.yml", "--storage.tsdb.path=" + dir + "/data",
                           "--web.listen-address=127.0.0.1:9090", "--log.level=error"},
                          node_.dir() + "/prometheus-pid");
    const auto query = [&](const std::string &expression) {
        return get("http://127.0.0.1:9090/api/v1/query?query=" + expression).out;
    };
    EXPECT_TRUE(wait_until([&] { return query("podlane_endpoint_packets_total").find("web-0") != std::string::npos; }))
        << query("up") << get("http://127.0.0.1:9090/api/v1/targets").out;
    EXPECT_EQ(prometheus.end(SIGTERM).rc, 0);
}

TEST_F(MetricsTest, TheDashboardQueriesMetricsThatExist) {
    use_the_node();
    const std::string text = ctl("metrics").out;
    const Json dashboard = Json::parse(source_text("tools/grafana/podlane.json"));
    std::set<std::string> asked;
    const std::string all = dashboard.dump();
    const std::regex name("podlane_[a-z_]+");
    for (std::sregex_iterator one(all.begin(), all.end(), name), end; one != end; ++one)
        asked.insert(one->str());
    EXPECT_GE(asked.size(), 8U);
    for (const std::string &metric : asked)
        EXPECT_THAT(text, testing::AnyOf(HasSubstr("# TYPE " + metric + " "), HasSubstr("\n" + metric + "{")));
}

} // namespace
} // namespace podlane::test
