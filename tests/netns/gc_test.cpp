// SPDX-License-Identifier: MIT
// GC removes every attachment of its network that is not valid any more, and nothing else; STATUS says what is missing.
#include "loader/record.hpp"
#include "tests/netns/verbs.hpp"

#include <bpf/bpf.h>

#include <csignal>
#include <future>

namespace podlane::test {
namespace {

class GcTest : public VerbsTest {
  protected:
    const Json others_ = {{"name", "others"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}}};
    [[nodiscard]] std::size_t endpoints() const { return size_of(&open_endpoints); }
    // When it has begun, and before it reads the records; SIGCONT to `stopped_` lets it go on.
    [[nodiscard]] std::future<Reply> start_gc_and_stop() {
        const std::string trace = node_.dir() + "/trace", pid = node_.dir() + "/pid";
        fs::remove(trace);
        const std::vector<std::string> argv = {"strace",
                                               "-qq",
                                               "-o",
                                               trace,
                                               "-e",
                                               "trace=getdents64",
                                               "-e",
                                               "inject=getdents64:signal=STOP:when=1",
                                               "sh",
                                               "-c",
                                               "echo $$ >" + pid + "; exec " + node_.plugins() + "/podlane"};
        auto reply = std::async(std::launch::async, [this, argv] {
            return to_reply(
                run(node_.ns(), argv, gc_config({}).dump(), {{"CNI_COMMAND", "GC"}, {"CNI_PATH", node_.plugins()}}));
        });
        EXPECT_TRUE(wait_until(
            [&] { return fs::exists(trace) && read_file(trace).find("stopped by SIGSTOP") != std::string::npos; }));
        std::ifstream(pid) >> stopped_;
        return reply;
    }
    // As an upgrade to a version with another map of endpoints: whoever has opened the old one sees no later ADD.
    void replace_endpoints() const {
        const Endpoints old = open(&open_endpoints);
        const MapFacts facts = require(map_facts(old.fd()));
        bpf_map_create_opts options{};
        options.sz = sizeof options;
        options.map_flags = facts.flags;
        Fd made(bpf_map_create(static_cast<bpf_map_type>(facts.type), PODLANE_MAP_ENDPOINTS, facts.key_size,
                               facts.value_size, facts.max_entries, &options));
        fs::remove(old.path());
        ASSERT_EQ(bpf_obj_pin(made.get(), old.path().c_str()), 0);
        const Endpoints now = Endpoints::of(std::move(made), old.path());
        for (const auto &[key, entry] : require(old.entries()))
            require(now.insert(key, entry));
    }
    pid_t stopped_ = 0;
};

TEST_F(GcTest, RemovesTheInvalidOfItsNetworkAlone) {
    const Pod living = make();
    const Pod dead = make();
    const Pod foreign = make(others_);
    const Reply reply = gc({&living});
    EXPECT_EQ(reply.rc, 0) << reply;
    EXPECT_EQ(reply.out, "");
    EXPECT_TRUE(host_link(dead).is_null());
    EXPECT_EQ(check(living).rc, 0) << check(living);
    EXPECT_EQ(check(foreign, others_).rc, 0);
    EXPECT_EQ(endpoints(), 2U);
    EXPECT_EQ(node_.leased().size(), 3U) << "the lease is released too";
    EXPECT_TRUE(ping(living.container->ns(), "203.0.113.2"));
}

TEST_F(GcTest, TheDeadAreNoLongerMasqueraded) {
    const Json masquerading = {{"ipMasq", true}};
    const Pod living = make(masquerading);
    const Pod dead = make(masquerading);
    const Pod also_dead = make(masquerading);
    EXPECT_EQ(gc({&living}, masquerading).rc, 0);
    const std::string left = node_.run("nft list table inet podlane-pods");
    for (const bool ipv4 : {true, false}) {
        EXPECT_THAT(left, testing::HasSubstr(to_string(living.addr(ipv4))));
        EXPECT_THAT(left, testing::Not(testing::HasSubstr(to_string(dead.addr(ipv4)))));
        EXPECT_THAT(left, testing::Not(testing::HasSubstr(to_string(also_dead.addr(ipv4)))));
    }
    EXPECT_EQ(check(living, masquerading).rc, 0);
}

// An ADD that ends while GC runs is in no list of the runtime. Its time of day does not count, and a time since the
// boot that is still to come (of a runtime in a time namespace) is none.
TEST_F(GcTest, LeavesWhatIsYoungerThanItsCall) {
    constexpr std::uint64_t kHourNs = 3600ULL * 1000000000;
    const Pod old = make();
    const Pod to_come = make();
    const Pod ahead = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    const auto change = [&](const Pod &pod, std::uint64_t boottime_ns, std::uint64_t realtime_ns) {
        AttachmentRecord record = *require(records.find(pod.container->id(), "eth0"));
        record.created_boottime_ns += boottime_ns;
        record.created_ns += realtime_ns;
        require(records.write(record));
        const auto all = open(&open_endpoints);
        const endpoint_key key = require(make_endpoint_key(pod.container->id(), "eth0"));
        endpoint entry = *require(all.find(key));
        entry.created_ns += realtime_ns;
        require(all.update(key, entry));
    };
    change(to_come, kHourNs, 0);
    change(ahead, 0, kHourNs);
    auto collected = start_gc_and_stop();
    const Pod young = make();
    change(young, 0, -kHourNs);
    kill(stopped_, SIGCONT);
    EXPECT_THAT(collected.get(), succeeds());
    EXPECT_TRUE(host_link(old).is_null());
    EXPECT_TRUE(host_link(to_come).is_null());
    EXPECT_TRUE(host_link(ahead).is_null());
    EXPECT_FALSE(host_link(young).is_null());
    EXPECT_EQ(endpoints(), 1U);
    EXPECT_EQ(check(young).rc, 0) << check(young);
}

TEST_F(GcTest, BesideAnUpgradeLeavesTheAddressesOfAPodThatIsAddedAfterIt) {
    for (const std::size_t dead : {1U, 2U}) {
        std::vector<Pod> gone;
        while (gone.size() < dead)
            gone.push_back(make());
        auto collected = start_gc_and_stop();
        replace_endpoints();
        const Pod young = make();
        kill(stopped_, SIGCONT);
        EXPECT_THAT(collected.get(), succeeds());
        for (const Pod &one : gone)
            EXPECT_TRUE(host_link(one).is_null());
        EXPECT_EQ(endpoints(), 1U);
        EXPECT_THAT(check(young), succeeds());
        EXPECT_THAT(del(*young.container), succeeds());
    }
}

// Nothing of it is under way, whatever the clock says by now.
TEST_F(GcTest, ReleasesTheLeaseOfAnEarlierBootWhoseClockWasAhead) {
    const Pod made = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = *require(records.find(made.container->id(), "eth0"));
    record.created_ns += 300ULL * 1000000000;
    record.created_boottime_ns += 300ULL * 1000000000;
    record.boot_id = "00000000-0000-0000-0000-000000000000";
    require(records.write(record));
    const auto all = open(&open_endpoints);
    for (const endpoint_key &key : require(all.keys()))
        require(all.remove(key));
    EXPECT_EQ(gc().rc, 0);
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_TRUE(node_.records().empty());
}

TEST_F(GcTest, AnotherInterfaceOfAValidContainerIsInvalid) {
    const Pod made = make();
    ASSERT_EQ(node_.cni("ADD", node_.config(), *made.container, {{"CNI_IFNAME", "net1"}}).rc, 0);
    EXPECT_EQ(gc({&made}).rc, 0);
    EXPECT_EQ(endpoints(), 1U);
    EXPECT_EQ(check(made).rc, 0) << check(made);
}

// CRI-O sends the older key as well, and the lists are the same.
TEST_F(GcTest, ReadsTheOlderKeyAndAnEmptyListButNeedsOne) {
    const Pod living = make();
    const Pod dead = make();
    const Pod foreign = make(others_);
    Json config = gc_config({&living});
    EXPECT_THAT(node_.cni("podlane", "GC", node_.config({{"cniVersion", "1.1.0"}})),
                fails_with(7, {"cni.dev/valid-attachments"}));
    EXPECT_EQ(check(dead).rc, 0) << "an error removes nothing";
    config["cni.dev/attachments"] = config["cni.dev/valid-attachments"];
    config.erase("cni.dev/valid-attachments");
    EXPECT_EQ(node_.cni("podlane", "GC", config).rc, 0);
    EXPECT_TRUE(host_link(dead).is_null());
    EXPECT_EQ(check(living).rc, 0);
    EXPECT_EQ(gc().rc, 0);
    EXPECT_TRUE(host_link(living).is_null());
    EXPECT_EQ(endpoints(), 1U);
    EXPECT_EQ(check(foreign, others_).rc, 0);
}

TEST_F(GcTest, OnAFreshNodeThereIsNothingToDo) {
    EXPECT_THAT(gc(), succeeds());
    EXPECT_FALSE(std::filesystem::exists(node_.bpffs()));
}

TEST_F(GcTest, WhatLostItsNamespaceOrLinkGoesToo) {
    const Pod made = make();
    lose_namespace(made);
    EXPECT_EQ(gc().rc, 0);
    EXPECT_EQ(endpoints(), 0U);
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(GcTest, AfterPtpTheOtherPluginsInterfaceStays) {
    Json ipam = node_.ipam();
    ipam["routes"] = {{{"dst", "0.0.0.0/0"}}};
    Chain chain(
        node_,
        {{{"type", "ptp"}, {"ipam", ipam}}, {{"type", "podlane"}, {"bpffs", node_.bpffs()}, {"firstPacket", "direct"}}},
        "1.0.0");
    auto container = node_.container();
    const Reply reply = succeeded(chain.add(*container));
    const Pod made = look_at(container, reply.json);
    Json config = chain.config(1, nullptr);
    config.update({{"cniVersion", "1.1.0"}, {"cni.dev/valid-attachments", Json::array()}});
    EXPECT_EQ(node_.cni("podlane", "GC", config).rc, 0);
    EXPECT_EQ(host_link(made).at("operstate"), "DOWN");
    EXPECT_TRUE(programs(made.ifindex, Hook::ingress).empty());
    EXPECT_EQ(chain.del(*container).rc, 0);
}

// An IPAM plugin of 1.1.0 that writes down who is asked for, and with which configuration.
class DelegatedTest : public GcTest {
  protected:
    DelegatedTest() { put_plugin(""); }

    // `failing`: what it does before it ends well.
    void put_plugin(const std::string &failing) const {
        node_.put_plugin("fake-ipam",
                         "#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || { echo '{\"cniVersion\":\"1.1.0\","
                         "\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}'; exit 0; }\n"
                         "cd " +
                             node_.dir() +
                             "\necho \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS\" >>calls\n"
                             "cat >$CNI_COMMAND.json\n" +
                             failing +
                             "[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.1.0\",\"ips\":[{\"address\":"
                             "\"198.18.9.'${CNI_CONTAINERID#container}'/24\"}]}'\n");
    }
    // Since the last time.
    [[nodiscard]] std::string calls() const {
        std::string text = run(node_.ns(), {"cat", node_.dir() + "/calls"}).out;
        std::filesystem::remove(node_.dir() + "/calls");
        return text;
    }
    [[nodiscard]] Json given(const std::string &command) const {
        return Json::parse(node_.run("cat " + node_.dir() + "/" + command + ".json"));
    }

    const Json ipam_ = {{"ipam", {{"type", "fake-ipam"}, {"dataDir", nullptr}, {"ranges", nullptr}}},
                        {"cniVersion", "1.1.0"}};
};

TEST_F(DelegatedTest, GcReachesTheIpamPluginWithTheValidOnes) {
    const Pod living = make(ipam_);
    const Pod dead = make(ipam_);
    (void)calls();
    const Json keys = {{"ipam", {{"type", "fake-ipam"}, {"of its own", {1, 2}}}}};
    EXPECT_THAT(gc({&living}, keys), succeeds());
    EXPECT_EQ(calls(), "DEL " + dead.container->id() + " eth0 \nGC   \n");
    EXPECT_EQ(given("GC"), gc_config({&living}, keys));
    EXPECT_EQ(check(living, ipam_).rc, 0);
}

TEST_F(DelegatedTest, GcHandsOnWhatTheIpamPluginSays) {
    const Pod dead = make(ipam_);
    put_plugin("[ $CNI_COMMAND != GC ] || { echo '{\"cniVersion\":\"1.1.0\",\"code\":11,\"msg\":\"the disk "
               "sleeps\"}'; exit 1; }\n");
    EXPECT_THAT(gc({}, {{"ipam", {{"type", "fake-ipam"}}}}), fails_with(11, {"fake-ipam", "the disk sleeps"}));
    EXPECT_TRUE(host_link(dead).is_null()) << "what is ours is done all the same";
    EXPECT_EQ(endpoints(), 0U);
}

TEST_F(DelegatedTest, StatusReachesTheIpamPlugin) {
    Json config = node_.config({{"cniVersion", "1.1.0"}});
    config["ipam"] = {{"type", "fake-ipam"}, {"of its own", {1, 2}}};
    EXPECT_EQ(node_.cni("podlane", "STATUS", config).rc, 0);
    EXPECT_EQ(calls(), "STATUS   \n");
    EXPECT_EQ(given("STATUS"), config);
}

class StatusTest : public VerbsTest {
  protected:
    [[nodiscard]] Reply status(const Json &keys = Json::object(), const Variables &more = {}) const {
        Json all = {{"cniVersion", "1.1.0"}};
        all.update(keys);
        return node_.cni("podlane", "STATUS", node_.config(all), more);
    }
};

// As every ADD would.
TEST_F(StatusTest, IsNotReadyWithoutItsUplink) {
    EXPECT_THAT(status({{"uplink", "none0"}}), fails_with(50, {"uplink: there is no interface none0"}));
    EXPECT_THAT(status({{"uplink", "up0"}}), succeeds());
}

TEST_F(StatusTest, IsReady) {
    for (int i = 0; i < 2; ++i) {
        const Reply reply = status();
        EXPECT_EQ(reply.rc, 0) << reply;
        EXPECT_EQ(reply.out, "");
    }
    (void)make();
    EXPECT_EQ(status().rc, 0);
}

TEST_F(StatusTest, HandsOnWhatTheIpamPluginSays) {
    for (const int code : {50, 51}) {
        node_.put_plugin("fake-ipam", "#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || { echo '{\"cniVersion\":\"1.1.0\","
                                      "\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}'; exit 0; }\n"
                                      "echo '{\"cniVersion\":\"1.1.0\",\"code\":" +
                                          std::to_string(code) + ",\"msg\":\"few addresses left\"}'; exit 1\n");
        EXPECT_THAT(status({{"ipam", {{"type", "fake-ipam"}}}}), fails_with(code, {"few addresses left", "fake-ipam"}));
    }
}

TEST_F(StatusTest, NamesWhatIsMissing) {
    EXPECT_THAT(status({{"ipam", {{"type", "no-such-ipam"}}}}), fails_with(50, {"no-such-ipam"}));
    const Reply reply = status({{"bpffs", node_.dir() + "/nowhere"}});
    EXPECT_THAT(reply, fails_with(50, {"bpffs", node_.dir() + "/nowhere"}));
    EXPECT_NE(reply.details(), "");
    if (!kernel_can_tcx()) {
        EXPECT_THAT(status({{"attach", "tcx"}}), fails_with(50, {"tcx"}));
    }
}

TEST_F(StatusTest, NamesMapsOfAnotherVersion) {
    ASSERT_EQ(status().rc, 0);
    const std::string live = node_.bpffs() + "/live/";
    std::filesystem::rename(live + "endpoints_v1", live + "endpoints_v0");
    EXPECT_THAT(status(), fails_with(50, {"endpoints_v0"}));
    std::filesystem::remove(live + "endpoints_v0");
    EXPECT_THAT(status(), succeeds()) << "a pin that is missing is restored, as by the next ADD";
    EXPECT_TRUE(fs::exists(live + "endpoints_v1"));
}

TEST_F(StatusTest, NamesPinsAndDirectoriesThatNoAddCouldUse) {
    ASSERT_THAT(status(), succeeds());
    const std::string pin = pin_path(node_.bpffs(), PODLANE_MAP_SENDERS);
    fs::rename(pin, node_.bpffs() + "/aside");
    fs::create_directory(pin);
    EXPECT_THAT(status(), fails_with(50, {"opening map", pin}));
    fs::remove(pin);
    fs::rename(node_.bpffs() + "/aside", pin);
    const std::string sealed = node_.dir() + "/sealed";
    fs::create_directory(sealed);
    node_.run("mount -t tmpfs -o ro,size=64k tmpfs " + sealed);
    for (const std::string &directory : {sealed, sealed + "/below"})
        EXPECT_THAT(status({{"stateDir", directory}}), fails_with(50, {sealed, "Read-only file system"}));
    node_.run("umount " + sealed);
    EXPECT_THAT(status(), succeeds());
}

// A foreign directory where ours should be.
TEST_F(StatusTest, RefusesADirectoryOthersMayWrite) {
    std::filesystem::create_directory(node_.bpffs());
    std::filesystem::permissions(node_.bpffs(), std::filesystem::perms::all);
    EXPECT_THAT(status(), fails_with(50, {node_.bpffs()}));
}

} // namespace
} // namespace podlane::test
