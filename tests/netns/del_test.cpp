// SPDX-License-Identifier: MIT
// DEL succeeds whatever is gone already, releases the lease each time, and leaves nothing.
#include "tests/harness/bpf.hpp"
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class DelTest : public VerbsTest {
  protected:
    void expect_nothing_left() const { EXPECT_EQ(node_.state(), before_); }
    void expect_deleted(const Pod &made, const Variables &more = {}) {
        const Reply reply = del(*made.container, Json::object(), more);
        EXPECT_EQ(reply.rc, 0) << reply;
        EXPECT_EQ(reply.out, "");
        expect_nothing_left();
    }

    void install_host_local() const {
        node_.remove_plugin("host-local");
        fs::create_symlink("/usr/lib/cni/host-local", node_.plugins() + "/host-local");
    }

    std::string before_ = node_.state(); // of a node that never saw an ADD
};

TEST_F(DelTest, LeavesNothing) {
    const Pod made = make({{"allowedSources", {"192.0.2.0/24"}},
                           {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}});
    ASSERT_NE(node_.state(), before_);
    expect_deleted(made);
    EXPECT_TRUE(ip_json(made.container->ns(), "link show").size() == 1) << "lo alone";
}

TEST_F(DelTest, SucceedsWithPrevResultAndRepeated) {
    const Pod made = make();
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(del(*made.container, {{"prevResult", made.result}}).rc, 0);
    expect_nothing_left();
}

TEST_F(DelTest, SucceedsForWhatWasNeverAdded) { expect_deleted({.container = node_.container()}); }

TEST_F(DelTest, SucceedsWhateverIsGone) {
    using Loss = std::function<void(const Pod &)>;
    for (const auto &[lost, lose] : std::initializer_list<std::pair<const char *, Loss>>{
             {"namespace", [&](const Pod &made) { made.container->remove_namespace(); }},
             {"link", [&](const Pod &made) { node_.run("ip link del " + made.host_ifname); }},
             {"endpoint's entry",
              [&](const Pod &made) {
                  (void)require(open(&open_endpoints).remove(require(make_endpoint_key(made.container->id(), "eth0"))));
              }},
             {"maps", [&](const Pod &) { fs::remove_all(node_.bpffs() + "/live"); }},
             {"bpffs directory", [&](const Pod &) { fs::remove_all(node_.bpffs()); }}}) {
        SCOPED_TRACE(lost);
        const Pod made = make();
        lose(made);
        EXPECT_THAT(del(*made.container), succeeds());
        ASSERT_TRUE(wait_until([&] { return host_link(made).is_null(); }))
            << "the kernel removes it with the namespace";
        expect_nothing_left();
    }
    EXPECT_FALSE(fs::exists(node_.bpffs())) << "DEL makes nothing";
}

// containerd's RemovePodSandbox, and `ctr run --cni`, know no namespace; the name may be another one's by now.
TEST_F(DelTest, SucceedsWithoutTheNameOfTheNamespace) {
    auto other = node_.container();
    std::ofstream(node_.dir() + "/file") << "left over";
    for (const std::string &netns : {std::string(), other->path(), node_.dir() + "/file"})
        expect_deleted(make(), {{"CNI_NETNS", netns}});
}

TEST_F(DelTest, DeletesTheOtherEntriesWithoutOneMap) {
    for (const char *name : {PODLANE_MAP_ENDPOINTS, PODLANE_MAP_ADDRESSES, PODLANE_MAP_COUNTERS, PODLANE_MAP_UPLINKS}) {
        SCOPED_TRACE(name);
        const Pod made = make();
        fs::remove(pin_path(node_.bpffs(), name));
        EXPECT_EQ(del(*made.container).rc, 0);
        EXPECT_TRUE(host_link(made).is_null());
        EXPECT_TRUE(node_.leased().empty());
        const std::set<std::string_view> others{
            name, PODLANE_MAP_HISTORY, PODLANE_MAP_WATCH, PODLANE_MAP_EVENTS, PODLANE_MAP_PATHS, PODLANE_MAP_COUNTERS};
        for (const auto &[map, entries] : map_entries(node_.bpffs(), others))
            EXPECT_TRUE(entries.empty()) << map;
        if (const auto counters = open_counters(node_.bpffs(), Access::read_only)) {
            EXPECT_THAT(require(counters->keys()), testing::Not(testing::Contains(made.ifindex)));
        }
        fs::remove_all(node_.bpffs());
    }
}

// The last one of a network asks whether it is used by others: the maps know those of other networks.
TEST_F(DelTest, ReadsTheRecordsOfNoOtherPods) {
    std::vector<Pod> others(6);
    for (Pod &other : others)
        other = make();
    Json alone = {{"name", "alone"}, {"ipam", node_.ipam()}};
    alone["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}};
    const Pod made = make(alone);
    (void)killed_del(*made.container, node_.config(alone), "openat", 0);
    const std::string opened = read_file(node_.dir() + "/trace");
    EXPECT_THAT(opened, HasSubstr(made.container->id() + ":eth0"));
    for (const Pod &other : others) {
        EXPECT_EQ(opened.find(other.container->id() + ":eth0"), std::string::npos);
        EXPECT_EQ(del(*other.container).rc, 0);
    }
    expect_nothing_left();
}

TEST_F(DelTest, FindsTheInterfaceAfterAnotherPrefix) {
    const Pod made = make();
    EXPECT_EQ(del(*made.container, {{"hostInterfacePrefix", "new"}}).rc, 0);
    expect_nothing_left();
}

TEST_F(DelTest, AnIpamPluginThatFailsIsCalledAgainByTheNextDel) {
    const Pod made = make();
    node_.put_plugin("host-local",
                     "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"the disk sleeps\"}'\nexit 1\n");
    EXPECT_THAT(del(*made.container), fails_with(11, {"the disk sleeps"}));
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_EQ(node_.leased().size(), 2U);
    install_host_local();
    expect_deleted(made);
}

TEST_F(DelTest, LeaseOfAMissingIpamPluginIsReleasedByALaterDel) {
    const Pod made = make();
    node_.remove_plugin("host-local");
    const Reply reply = del(*made.container);
    EXPECT_EQ(reply.rc, 0) << reply;
    EXPECT_THAT(reply.err, HasSubstr("\"host-local\" is not in CNI_PATH"));
    node_.put_plugin("host-local", "");
    fs::permissions(node_.plugins() + "/host-local", fs::perms::owner_read);
    EXPECT_THAT(del(*made.container).err, HasSubstr("host-local is not an executable file: its lease stays for now"));
    fs::permissions(node_.plugins() + "/host-local", fs::perms::owner_all);
    const std::string there = node_.plugins();
    node_.run("mount --bind " + there + " " + there);
    node_.run("mount -o remount,bind,noexec " + there);
    EXPECT_THAT(del(*made.container).err, HasSubstr("host-local may not be executed there: its lease stays for now"));
    node_.run("umount " + there);
    node_.remove_plugin("host-local");
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_EQ(node_.leased().size(), 2U);
    install_host_local();
    expect_deleted(made);
}

// After a sandbox dies a new one gets the pod's name, while the DEL of the old one is still to come.
TEST_F(DelTest, OfAnOldSandboxLeavesTheNewOneOfThePodAlone) {
    const Variables pod = {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"}};
    const Pod old = make(Json::object(), pod);
    const Pod current = make(Json::object(), pod);
    const std::string with_both = node_.state();
    for (int i = 0; i < 2; ++i) {
        Variables of_old = pod;
        of_old["CNI_NETNS"] = current.container->path(); // a runtime may have reused the name
        EXPECT_EQ(del(*old.container, Json::object(), of_old).rc, 0);
        EXPECT_EQ(check(current, Json::object(), pod).rc, 0) << check(current);
        EXPECT_TRUE(ping(current.container->ns(), "203.0.113.2"));
    }
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(del(*current.container, Json::object(), pod).rc, 0);
    expect_nothing_left();
}

// A foreign link of the same name stays.
TEST_F(DelTest, LeavesAForeignLinkOfItsNameAlone) {
    const Pod made = make();
    ASSERT_EQ(del(*made.container).rc, 0);
    node_.run("ip link add " + made.host_ifname + " type bridge");
    EXPECT_EQ(del(*made.container).rc, 0);
    EXPECT_FALSE(host_link(made).is_null());
    node_.run("ip link del " + made.host_ifname);
}

TEST_F(DelTest, SeveralInterfacesOfAContainerGoOneByOne) {
    const Pod made = make();
    const Json second = node_.config({{"name", "second"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.12.0/24"}}}}}}}});
    ASSERT_EQ(node_.cni("ADD", second, *made.container, {{"CNI_IFNAME", "net1"}}).rc, 0);
    EXPECT_EQ(node_.cni("DEL", second, *made.container, {{"CNI_IFNAME", "net1"}}).rc, 0);
    EXPECT_EQ(check(made).rc, 0) << check(made);
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
    expect_deleted(made);
}

// The bytes that a DEL reads do not grow with the other pods.
TEST_F(DelTest, ReadsTheLimitsOfFewOthers) {
    const Json keys = {{"ingressRate", 8000000},
                       {"ingressBurst", 64000000},
                       {"limitGroup", "tenant-a"},
                       {"limitGroups", {{"tenant-a", {{"ingressRate", 80000000}}}}}};
    std::vector<Pod> others;
    const auto calls_of_del = [&] {
        const Pod made = make(keys);
        const std::string trace = node_.dir() + "/trace";
        Variables variables = attachment(*made.container);
        variables.insert({{"CNI_COMMAND", "DEL"}, {"CNI_PATH", node_.plugins()}});
        const Output output =
            run(node_.ns(), {"strace", "-qq", "-e", "trace=bpf", "-o", trace, node_.plugins() + "/podlane"},
                node_.config(keys).dump(), variables);
        EXPECT_EQ(output.rc, 0) << output.out;
        const std::string text = read_file(trace);
        return std::ranges::count(text, '\n');
    };
    const auto add_others = [&](int count) {
        for (int i = 0; i < count; ++i)
            others.push_back(make(keys));
    };
    add_others(2);
    const auto few = calls_of_del();
    add_others(20);
    EXPECT_LE(calls_of_del(), few + 10);
}

} // namespace
} // namespace podlane::test
