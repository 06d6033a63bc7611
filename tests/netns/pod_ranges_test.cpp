// SPDX-License-Identifier: MIT
// usePodCidr and usePodCidrIPv6: the node's ranges by the real podlane-k8s, and what is kept of them on disk.
#include "tests/netns/kubernetes.hpp"

namespace podlane::test {
namespace {

class PodRangesTest : public KubernetesTest {
  protected:
    void SetUp() override {
        KubernetesTest::SetUp();
        // Nobody asks before: the node is as it is with pods.
        const auto container = node_.container();
        ASSERT_THAT(add(*container), succeeds());
        ASSERT_THAT(del(*container), succeeds());
    }
    // As Calico's configurations have it, for both families.
    [[nodiscard]] Json of_node(const std::string &node = "worker-1", const Json &more = Json::object()) const {
        Json all = {{"nodename", node},
                    {"kubernetes", account()},
                    {"stateDir", state()},
                    {"ipam", {{"ranges", {{{{"subnet", "usePodCidr"}}}, {{{"subnet", "usePodCidrIPv6"}}}}}}},
                    {"log", {{"file", path("log")}}}};
        all.merge_patch(more);
        return all;
    }
    [[nodiscard]] std::string state() const { return path("kept"); }
    [[nodiscard]] std::vector<std::string> kept() const {
        std::vector<std::string> files;
        if (std::filesystem::exists(state()))
            for (const auto &entry : std::filesystem::directory_iterator(state()))
                if (entry.path().filename().string().starts_with("pod-ranges-"))
                    files.push_back(entry.path());
        return files;
    }
    // As if they had been asked for that long ago.
    void age(std::uint64_t seconds) const {
        Json all = Json::parse(read_file(kept().at(0)));
        all["askedNs"] = all["askedNs"].get<std::uint64_t>() - seconds * 1'000'000'000;
        std::ofstream(kept().at(0)) << all;
    }
    [[nodiscard]] std::string log_text() const { return read_file(path("log")); }
    Pod make_of_node(const Json &more = Json::object()) { return make(of_node("worker-1", more)); }
};

TEST_F(PodRangesTest, HostLocalGetsTheRangesOfTheNode) {
    const Pod first = make_of_node();
    EXPECT_THAT(first.text4(), testing::StartsWith("198.18.40."));
    EXPECT_THAT(first.text6(), testing::StartsWith("2001:db8:40:"));
    EXPECT_EQ(requests(), 1U);
    EXPECT_THAT(read_file(path("requests")), HasSubstr("GET\t/api/v1/nodes/worker-1\tapplication/json\tBearer "));
    ASSERT_EQ(kept().size(), 1U);
    EXPECT_EQ(std::filesystem::status(kept()[0]).permissions(), std::filesystem::perms(0600));
    EXPECT_THAT(read_file(kept()[0]), Not(HasSubstr(kToken)));

    server_.reset();
    const Pod second = make_of_node();
    EXPECT_THAT(second.text4(), testing::StartsWith("198.18.40."));
    EXPECT_THAT(node_.cni("STATUS", node_.config(of_node("worker-1", {{"cniVersion", "1.1.0"}})), *second.container),
                succeeds());
    EXPECT_EQ(log_text(), "") << "nobody is asked";
    age(301);
    const Pod third = make_of_node();
    EXPECT_THAT(log_text(), HasSubstr("for node worker-1: podlane-k8s: GET /api/v1/nodes/worker-1: "));
    EXPECT_THAT(log_text(), HasSubstr("; its ranges are taken to be what they were: 198.18.40.0/24, 2001:db8:40::/64"));
    const std::string once = log_text();
    const Pod fourth = make_of_node();
    EXPECT_EQ(log_text(), once) << "the API server is left alone for a while";

    EXPECT_THAT(check(third, of_node()), succeeds());
    std::filesystem::remove(kept()[0]);
    EXPECT_THAT(check(third, of_node()), succeeds());
    EXPECT_THAT(node_.podlanectl("repair"), prints(0));
    for (const Pod *one : {&first, &second, &third})
        EXPECT_THAT(del(*one->container, of_node()), succeeds());
    EXPECT_THAT(del(*node_.container(), of_node()), succeeds()) << "of a container that nobody knows";
    Json gc = of_node("worker-1", {{"cniVersion", "1.1.0"}});
    gc["cni.dev/valid-attachments"] = Json::array();
    EXPECT_THAT(node_.cni("GC", node_.config(gc), *fourth.container), succeeds());
    EXPECT_THAT(node_.leased(), testing::IsEmpty());
    EXPECT_TRUE(kept().empty());
}

TEST_F(PodRangesTest, AreOfANodeWithALongNameInTheEnvironment) {
    std::string name = "worker-1";
    while (name.size() < 240)
        name += ".of-the-north";
    (void)make(of_node("", {{"nodename", nullptr}}), {{"NODENAME", name}});
    EXPECT_THAT(read_file(path("requests")), HasSubstr("GET\t/api/v1/nodes/" + name + "\t"));
}

TEST_F(PodRangesTest, AreQueriedAgainAfterFiveMinutes) {
    (void)make_of_node();
    write("port.ranges", R"(["198.18.41.0/24", "2001:db8:41::/64"])");
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.40.")) << "not before five minutes are over";
    age(301);
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.41."));
    EXPECT_THAT(log_text(), HasSubstr("the ranges of node worker-1 are no longer 198.18.40.0/24"));
    EXPECT_EQ(requests(), 2U);
    age(1ULL << 31U); // the clock is set
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.41."));
    EXPECT_EQ(requests(), 3U);
    (void)make(of_node("worker-2"));
    EXPECT_EQ(requests(), 4U) << "another node";
    EXPECT_THAT(node_.podlanectl("uninstall --bin-dir " + path("no-bin") + " --conf-dir " + path("no-conf") +
                                 " --state-dir " + state()),
                prints(0));
    EXPECT_TRUE(kept().empty());
}

TEST_F(PodRangesTest, FilesThatAreNotWholeCountForNothing) {
    (void)make_of_node();
    const std::string whole = read_file(kept()[0]);
    Json hostile = Json::parse(whole);
    hostile["podCIDRs"] = {"0.0.0.0/0"};
    Json foreign = Json::parse(whole);
    foreign["question"] = "of another node";
    std::size_t so_far = requests();
    for (const std::string &text : {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
                                    std::string(whole.size(), '\0'), hostile.dump(), foreign.dump()}) {
        std::ofstream(kept()[0]) << text;
        EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.40.")) << text;
        EXPECT_EQ(requests(), ++so_far) << text;
    }
}

// Whatever is in the file's place costs no pod its start while the API server answers, and none believes it.
TEST_F(PodRangesTest, OnlyAFileOfRootsOwnCounts) {
    (void)make_of_node();
    const std::string file = kept()[0];
    std::string foreign = read_file(file);
    foreign.replace(foreign.find("198.18.40.0"), 11, "198.18.66.0");
    write("foreign", foreign);
    const std::map<std::string, std::string> commands = {
        {"a link", "ln -s " + path("foreign") + " " + file},
        {"a link to nothing", "ln -s " + path("none") + " " + file},
        {"a pipe", "mkfifo " + file},
        {"a directory", "mkdir -p " + file + "/within"},
        {"another user's", "install -o 65534 -m 600 " + path("foreign") + " " + file},
        {"writable by a group", "install -m 620 " + path("foreign") + " " + file},
        {"writable by all", "install -m 606 " + path("foreign") + " " + file}};
    for (const auto &[what, command] : commands) {
        SCOPED_TRACE(what);
        std::filesystem::remove_all(file);
        node_.run(command);
        std::filesystem::remove(path("log"));
        EXPECT_THAT(make_of_node().text4(), StartsWith("198.18.40."));
        EXPECT_THAT(log_text(), HasSubstr("the node's ranges that were kept are not used: reading " + file));
        if (what == "a directory")
            EXPECT_THAT(log_text(), HasSubstr("the node's ranges are not kept: "));
        else
            EXPECT_THAT(read_file(file), HasSubstr("198.18.40.0/24"));
        EXPECT_EQ(read_file(path("foreign")), foreign);
    }
    server_.reset();
    for (const auto &[what, command] : commands) {
        SCOPED_TRACE(what);
        std::filesystem::remove_all(file);
        node_.run(command);
        EXPECT_THAT(add(*node_.container(), of_node()), fails_with(11, {"querying the API server"}));
    }
}

// The node was given another range while it had pods: they stay as they are, and their leases are released.
TEST_F(PodRangesTest, PodsOfTheOldRangeLiveOn) {
    const auto keeping = [&](const Json &more = Json::object()) {
        Json all = of_node("worker-1", {{"keepAddress", "statefulSet"}});
        all.update(more);
        return all;
    };
    const Pod old = make_of_node();
    const Pod held = make(keeping(), named("shop", "web-0"));
    EXPECT_THAT(del(*held.container, keeping(), named("shop", "web-0")), succeeds());
    write("port.ranges", R"(["198.18.41.0/24", "2001:db8:41::/64"])");
    age(301);
    const Pod fresh = make_of_node();
    EXPECT_THAT(fresh.text4(), StartsWith("198.18.41."));
    EXPECT_TRUE(ping(fresh.ns(), old.text4()));
    EXPECT_TRUE(ping(old.ns(), fresh.text6()));
    EXPECT_THAT(check(old, of_node()), succeeds());
    EXPECT_THAT(make(keeping(), named("shop", "web-0")).text4(), StartsWith("198.18.41."))
        << "an address of the old range cannot be had again";
    EXPECT_THAT(log_text(), HasSubstr("the addresses that were held for the pod cannot be had"));
    EXPECT_THAT(del(*old.container, of_node()), succeeds());
    for (const std::string &lease : node_.leased())
        EXPECT_THAT(lease, Not(HasSubstr("198.18.40."))) << "of the range that is another node's by now";
}

TEST_F(PodRangesTest, DoctorComparesThemWithTheNodesNetworks) {
    const Json config = of_node("Worker-1", {{"type", "podlane"}, {"ipam", {{"type", "host-local"}}}});
    const auto overlaps = [&](Json plugin) {
        std::filesystem::create_directories(path("conf"));
        std::filesystem::create_directories(state());
        write("conf/10-podlane.conflist",
              Json{{"cniVersion", "1.0.0"}, {"name", "pods"}, {"plugins", {plugin}}}.dump());
        std::string found;
        for (const Json &one : Json::parse(node_
                                               .podlanectl("doctor --json --conf-dir " + path("conf") +
                                                           " --state-dir " + state() + " --bin-dir " + node_.plugins())
                                               .out))
            if (one.at("check") == "range-overlap")
                found += one.at("finding").get<std::string>() + "\n";
        return found;
    };
    node_.run("ip addr add 198.18.40.129/25 dev up0");
    EXPECT_EQ(overlaps(config), "") << "nobody has asked yet, and doctor does not";
    (void)make_of_node();
    constexpr const char *kFound = "198.18.40.0/24 of network pods overlaps 198.18.40.128/25 of up0\n";
    EXPECT_EQ(overlaps(config), kFound);
    Json other = config;
    other.erase("nodename");
    EXPECT_EQ(overlaps(other), kFound) << "the runtime's environment may name the node";
    other["ipam"] = {{"type", "host-local"}, {"ranges", Json::array()}};
    other["pools"] = {{"blue", {{"subnet", "usePodCidr"}}}};
    EXPECT_EQ(overlaps(other), kFound) << "of a pool";
    other["kubernetes"]["server"] = "https://127.0.0.1:1";
    EXPECT_EQ(overlaps(other), "") << "of another cluster";
    other = config;
    other["nodename"] = "worker-2";
    EXPECT_EQ(overlaps(other), "") << "of another node";
    EXPECT_EQ(requests(), 1U);
}

// Also what a killed call has left.
TEST_F(PodRangesTest, UninstallLeavesNoneOfThem) {
    (void)make_of_node();
    const std::string name = std::filesystem::path(kept()[0]).filename();
    std::filesystem::rename(kept()[0], state() + "/." + name);
    std::filesystem::create_directory(state() + "/pod-ranges-of-nobody");
    EXPECT_THAT(node_.podlanectl("uninstall --bin-dir " + path("no-bin") + " --conf-dir " + path("no-conf") +
                                 " --state-dir " + state()),
                prints(0));
    EXPECT_FALSE(std::filesystem::exists(state() + "/." + name));
}

TEST_F(PodRangesTest, WithoutRangesAddFailsAndLeavesNothing) {
    const auto container = node_.container();
    const std::string before = node_.state();
    const std::map<std::string, Parts> answers = {{"unauthorized", {"401", "Unauthorized"}},
                                                  {"forbidden", {"403", "Forbidden"}},
                                                  {"missing", {"404"}},
                                                  {"garbage", {"answer"}},
                                                  {"huge", {"longer than 1 MiB"}},
                                                  {"slow", {"podlane-k8s"}},
                                                  {"none", {"no spec.podCIDRs"}},
                                                  {"everything", {"spec.podCIDRs[0] is \"0.0.0.0/0\""}},
                                                  {"everything6", {"spec.podCIDRs[0] is \"::/0\""}},
                                                  {"host-bits", {"spec.podCIDRs[0]"}},
                                                  {"loopback", {"spec.podCIDRs[0]"}},
                                                  {"one-address", {"spec.podCIDR is"}},
                                                  {"twice", {"second range of its family"}},
                                                  {"many", {"second range of its family"}},
                                                  {"numbers", {"spec.podCIDRs[0]"}}};
    for (const auto &[name, parts] : answers) {
        SCOPED_TRACE(name);
        const Reply reply = add(*container, of_node(name));
        EXPECT_THAT(reply, fails_with(11, parts));
        EXPECT_THAT(reply.message(),
                    HasSubstr("\"ipam\" has \"usePodCidr\": querying the API server for node " + name));
        EXPECT_FALSE(reply.details().empty()) << "the way out";
        EXPECT_EQ(node_.state(), before);
        EXPECT_TRUE(kept().empty());
    }
    const Json status = of_node("none", {{"cniVersion", "1.1.0"}});
    EXPECT_THAT(node_.cni("STATUS", node_.config(status), *container), fails_with(11, {"no spec.podCIDRs"}));
    for (const char *name : {"old", "ipv6-only"}) {
        const bool lacks_ipv6 = std::string(name) == "old";
        EXPECT_THAT(add(*container, of_node(name)), fails_with(7, {lacks_ipv6 ? "no IPv6 range" : "no IPv4 range",
                                                                   lacks_ipv6 ? "usePodCidrIPv6" : "usePodCidr"}));
    }
    EXPECT_THAT(make(of_node("old", {{"ipam", {{"ranges", nullptr}, {"subnet", "usePodCidr"}}}})).text4(),
                testing::StartsWith("198.18.44."))
        << "a node of an older Kubernetes, and host-local's older key";
    EXPECT_THAT(add(*container, of_node("worker-1", {{"kubernetes", nullptr}})),
                fails_with(7, {"usePodCidr", "how to reach the API server"}));
    EXPECT_THAT(add(*container, of_node("Worker One")), fails_with(7, {"\"worker one\"", "no name of a node"}));
    EXPECT_THAT(del(*container, of_node("worker-1", {{"kubernetes", nullptr}})), succeeds());
    node_.remove_plugin("podlane-k8s");
    EXPECT_THAT(add(*container, of_node()), fails_with(11, {"podlane-k8s", "CNI_PATH"}));
}

} // namespace
} // namespace podlane::test
