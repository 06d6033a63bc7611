// SPDX-License-Identifier: MIT
// keepAddress: a pod that returns to the node in time gets its addresses back, and nothing is held for longer.
#include "loader/record.hpp"
#include "maps/fd.hpp"
#include "tests/netns/fault.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <sstream>
#include <thread>

namespace podlane::test {
namespace {

class HeldLeaseTest : public CtlTest {
  protected:
    [[nodiscard]] static Json keys(const Json &more = Json::object()) {
        Json all = {{"keepAddress", "statefulSet"}};
        all.update(more);
        return all;
    }
    Pod start(const std::string &name, const Json &more = Json::object()) {
        return make(keys(more), named("shop", name));
    }
    void stop(const Pod &pod, const std::string &name, const Json &more = Json::object()) const {
        EXPECT_THAT(del(*pod.container, keys(more), named("shop", name)), succeeds());
    }
    // Addresses of both families of a pod that came and went.
    std::pair<std::string, std::string> come_and_go(const std::string &name, const Json &more = Json::object()) {
        const Pod pod = start(name, more);
        stop(pod, name, more);
        return {pod.text4(), pod.text6()};
    }
    [[nodiscard]] std::vector<std::string> held() const {
        std::vector<std::string> pods;
        for (const Json &one : ctl_json("lease list"))
            pods.push_back(one.at("pod"));
        return pods;
    }
    [[nodiscard]] std::string held_directory() const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/.held";
    }
    [[nodiscard]] static std::pair<std::string, std::string> addresses(const Pod &pod) {
        return {pod.text4(), pod.text6()};
    }
    using Names = std::vector<std::string>;
};

TEST_F(HeldLeaseTest, APodThatReturnsGetsItsAddressesBack) {
    const auto before = come_and_go("web-0");
    EXPECT_EQ(held(), Names{"shop/web-0"});
    EXPECT_EQ(node_.leased().size(), 2U) << "nobody else gets them";
    EXPECT_EQ(ctl_json("lease list").at(0)["addresses"], Json({before.first, before.second}));
    const Pod other = start("web-1");
    EXPECT_NE(other.text4(), before.first);
    const Pod again = start("web-0");
    EXPECT_EQ(addresses(again), before);
    EXPECT_EQ(held(), Names{});
    EXPECT_EQ(node_.records().size(), 2U) << "of the two pods";
    EXPECT_THAT(check(again, keys(), named("shop", "web-0")), succeeds());
    EXPECT_TRUE(ping(other.ns(), before.first));

    // Runtimes repeat DELs; the time goes on.
    stop(again, "web-0");
    const Json first = ctl_json("lease list").at(0);
    stop(again, "web-0");
    EXPECT_EQ(held(), Names{"shop/web-0"});
    EXPECT_LE(ctl_json("lease list").at(0)["seconds_left"], first["seconds_left"]);
    EXPECT_EQ(addresses(start("web-0")), before);
    // Another network of the node, and another namespace, have other pods of the name.
    EXPECT_NE(make(keys(), named("other", "web-0")).text4(), before.first);
}

// The runtime's DEL of the failed ADD leaves them alone as well; the time goes on.
TEST_F(HeldLeaseTest, AFailedAddGivesNothingUp) {
    const auto before = come_and_go("web-0");
    const Json failing = keys({{"sysctls", {{"net.ipv4.no_such_setting", "1"}}}, {"keepAddressSeconds", 3000}});
    auto container = node_.container();
    for (int i = 0; i < 2; ++i) { // the next one takes over from the first
        container = node_.container();
        EXPECT_THAT(add(*container, failing, named("shop", "web-0")), fails_with(106, {"no_such_setting"}));
    }
    EXPECT_EQ(held(), Names{"shop/web-0"});
    const Json now = ctl_json("lease list").at(0);
    EXPECT_LE(now["seconds_left"], 300);
    EXPECT_EQ(now["container_id"], container->id());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_EQ(node_.records().size(), 1U) << "of the last container of the pod";
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(del(*container, failing, named("shop", "web-0")), succeeds());
    for (int i = 0; i < 3; ++i)
        EXPECT_NE(make().text4(), before.first) << i;
    EXPECT_EQ(addresses(start("web-0")), before);
    EXPECT_EQ(held(), Names{});
}

TEST_F(HeldLeaseTest, OnlyPodsThatMayKeepTheirAddress) {
    for (const std::string name : {"web-7d4b9c", "web", "web-", "web-01", "-1"})
        (void)come_and_go(name);
    (void)come_and_go("web-0", {{"keepAddress", "none"}});
    const Json annotated = {
        {"runtimeConfig", {{"io.kubernetes.cri.pod-annotations", {{"podlane/keepAddress", "true"}}}}}};
    (void)come_and_go("web", annotated);
    EXPECT_EQ(held(), Names{}) << "podMay does not grant it";
    Json granted = annotated;
    granted["podMay"] = {"keepAddress"};
    const auto before = come_and_go("web", granted);
    EXPECT_EQ(held(), Names{"shop/web"});
    EXPECT_EQ(addresses(start("web", granted)), before);
    granted["runtimeConfig"]["io.kubernetes.cri.pod-annotations"]["podlane/keepAddress"] = "false";
    (void)come_and_go("web-2", granted);
    EXPECT_EQ(held(), Names{});
    (void)come_and_go("any", {{"keepAddress", "all"}});
    EXPECT_EQ(held(), Names{"shop/any"});
    granted["runtimeConfig"]["io.kubernetes.cri.pod-annotations"]["podlane/keepAddress"] = "maybe";
    EXPECT_THAT(add(*node_.container(), keys(granted), named("shop", "x")), fails_with(7, {"podlane/keepAddress"}));
}

TEST_F(HeldLeaseTest, TimeGcAdministratorAndUninstallReleaseIt) {
    const Json short_time = {{"keepAddressSeconds", 1}};
    const auto is_free = [&] { return node_.leased().empty() && node_.records().empty(); };
    (void)come_and_go("web-0", short_time);
    EXPECT_TRUE(wait_until([&] { return held().empty(); }));
    EXPECT_TRUE(is_free()) << "by podlanectl";
    (void)come_and_go("web-0", short_time);
    const Pod other = make();
    EXPECT_TRUE(wait_until([&] {
        (void)node_.cni("DEL", node_.config(), *node_.container());
        return node_.leased().size() == 2;
    })) << "by a DEL of any pod, whatever the configuration says by now";
    EXPECT_THAT(del(*other.container), succeeds());

    (void)come_and_go("web-0");
    (void)come_and_go("web-1");
    EXPECT_THAT(ctl("lease release"), complains(2, {"--all"}));
    EXPECT_THAT(ctl("lease release shop/web-9"), complains(1, {"no such lease"}));
    EXPECT_THAT(ctl("lease release shop/web-0"), prints(0, {"released 198.18.9."}));
    EXPECT_EQ(held(), Names{"shop/web-1"});
    EXPECT_THAT(ctl("lease release --all"), prints(0));
    EXPECT_TRUE(is_free());

    (void)come_and_go("web-0");
    EXPECT_THAT(gc({}, keys()), succeeds());
    EXPECT_TRUE(is_free());

    (void)come_and_go("web-0");
    EXPECT_THAT(ctl("uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir()),
                prints(0, {"released the lease that was held"}));
    EXPECT_TRUE(is_free());
}

// An address that is given away between its release and its request.
TEST_F(HeldLeaseTest, AClockThatWasSetBackReleasesIt) {
    (void)come_and_go("web-0");
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord record = require(records.list()).at(0);
    for (std::uint64_t *const time : {&record.held_since_ns, &record.held_until_ns})
        *time += 3600ULL * 1000000000;
    require(records.write(record));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_TRUE(node_.records().empty());
}

TEST_F(HeldLeaseTest, AnAddressThatAnotherHasTakenIsReplaced) {
    const auto before = come_and_go("web-0");
    const std::string host_local = std::filesystem::read_symlink(node_.plugins() + "/host-local");
    std::filesystem::create_symlink(host_local, node_.dir() + "/real");
    node_.put_plugin("host-local", "#!/bin/sh\nconfig=$(cat)\necho \"$config\" | " + node_.dir() +
                                       "/real\ncode=$?\n"
                                       "[ $CNI_COMMAND = DEL ] && echo thief >" +
                                       node_.leases() + "/pods/" + before.first + "\nexit $code\n");
    const Pod again = start("web-0", {{"log", {{"file", node_.dir() + "/log"}}}});
    EXPECT_NE(again.text4(), before.first);
    EXPECT_THAT(read_file(node_.dir() + "/log"), HasSubstr("the addresses that were held for the pod cannot be had"));
    EXPECT_EQ(held(), Names{});
}

// A pod that is there goes before one that may come.
TEST_F(HeldLeaseTest, HeldAddressesGiveWayIfTheRangeIsFull) {
    Json ipam = node_.ipam();
    ipam["ranges"] = {{{{"subnet", "198.18.9.0/29"}}}};
    const Json small = {{"ipam", ipam}};
    for (int i = 0; i < 5; ++i)
        (void)come_and_go("web-" + std::to_string(i), small);
    EXPECT_EQ(held().size(), 5U);
    (void)start("db-0", small);
    EXPECT_EQ(held(), (Names{"shop/web-1", "shop/web-2", "shop/web-3", "shop/web-4"})) << "the oldest one";
}

TEST_F(HeldLeaseTest, TheNextOneGivesWayIfTheOldestCannotBeReleased) {
    Json ipam = node_.ipam();
    ipam["ranges"] = {{{{"subnet", "198.18.9.0/29"}}}};
    const Json small = {{"ipam", ipam}};
    const Pod oldest = start("web-0", small);
    stop(oldest, "web-0", small);
    for (int i = 1; i < 5; ++i)
        (void)come_and_go("web-" + std::to_string(i), small);
    const std::string tries = node_.dir() + "/tries", host_local = fs::read_symlink(node_.plugins() + "/host-local");
    node_.remove_plugin("host-local");
    node_.put_plugin("host-local", "#!/bin/sh\nif [ $CNI_COMMAND$CNI_CONTAINERID = DEL" + oldest.container->id() +
                                       " ]; then\necho >>" + tries +
                                       "\necho '{\"code\":100,\"msg\":\"no data\"}'\nexit 1\nfi\nexec " + host_local +
                                       "\n");
    (void)start("db-0", small);
    EXPECT_EQ(held(), (Names{"shop/web-0", "shop/web-2", "shop/web-3", "shop/web-4"}));
    const auto tried = fs::file_size(tries);
    (void)start("db-1", small);
    EXPECT_EQ(held(), (Names{"shop/web-0", "shop/web-3", "shop/web-4"}));
    EXPECT_EQ(fs::file_size(tries), tried) << "its time has not come";
}

// A network moves to another IPAM plugin: the former one has gone, or fails.
TEST_F(HeldLeaseTest, APodDoesNotDependOnAFormerIpamPlugin) {
    const std::string log = node_.dir() + "/log", host_local = fs::read_symlink(node_.plugins() + "/host-local");
    const Json moved = keys(
        {{"log", {{"file", log}}}, {"ipam", {{"type", "static"}, {"addresses", {{{"address", "198.18.9.77/32"}}}}}}});
    for (const std::string name : {"web-0", "web-1"}) {
        (void)come_and_go(name);
        node_.remove_plugin("host-local");
        if (name == "web-1")
            node_.put_plugin("host-local", "#!/bin/sh\necho '{\"code\":100,\"msg\":\"no data\"}'\nexit 1\n");
        const auto container = node_.container();
        EXPECT_THAT(add(*container, moved, named("shop", name)), succeeds());
        EXPECT_THAT(read_file(log), HasSubstr("the held lease waits"));
        EXPECT_THAT(del(*container, moved, named("shop", name)), succeeds());
        fs::remove(log);
        node_.remove_plugin("host-local");
        fs::create_symlink(host_local, node_.plugins() + "/host-local");
    }
    EXPECT_THAT(gc(), succeeds());
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_EQ(held(), Names{});
}

// Not by each call: see hanging_ipam_test.cpp.
TEST_F(HeldLeaseTest, AReleaseThatFailsIsTriedAgain) {
    const std::string log = node_.dir() + "/log", host_local = fs::read_symlink(node_.plugins() + "/host-local");
    const auto del_another = [&] {
        const Json config = node_.config({{"ipam", nullptr}, {"log", {{"file", log}}}});
        EXPECT_THAT(node_.cni("DEL", config, *node_.container()), succeeds());
    };
    (void)come_and_go("web-0", {{"keepAddressSeconds", 1}});
    node_.put_plugin("host-local", "#!/bin/sh\necho '{\"code\":100,\"msg\":\"no data\"}'\nexit 1\n");
    EXPECT_TRUE(wait_until([&] {
        del_another();
        return read_file(log).find("releasing the held lease") != std::string::npos;
    }));
    EXPECT_EQ(node_.leased().size(), 2U);
    node_.remove_plugin("host-local");
    fs::create_symlink(host_local, node_.plugins() + "/host-local");
    del_another();
    EXPECT_EQ(node_.leased().size(), 2U) << "its time has not come";
    for (const auto &entry : fs::directory_iterator(held_directory()))
        fs::last_write_time(entry, fs::file_time_type::clock::now());
    del_another();
    EXPECT_TRUE(node_.leased().empty());
}

// It has not said that the range is full.
TEST_F(HeldLeaseTest, AnIpamPluginThatIsKilledCostsNoHeldAddress) {
    const auto before = come_and_go("web-0");
    const std::string host_local = fs::read_symlink(node_.plugins() + "/host-local");
    node_.remove_plugin("host-local");
    node_.put_plugin("host-local", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && exec sleep 60\nexec " + host_local + "\n");
    EXPECT_THAT(add(*node_.container(), keys({{"ipamTimeout", 1}}), named("shop", "db-0")), fails_with(11));
    EXPECT_EQ(held(), Names{"shop/web-0"});
    node_.remove_plugin("host-local");
    fs::create_symlink(host_local, node_.plugins() + "/host-local");
    EXPECT_EQ(addresses(start("web-0")), before);
}

// A node where a lease has been held once, and many other pods.
TEST_F(HeldLeaseTest, CallsOfOthersReadNoRecordsOfThirdPods) {
    (void)come_and_go("web-0");
    std::vector<Pod> pods;
    for (int i = 0; i < 6; ++i)
        pods.push_back(make());
    const auto container = node_.container();
    for (const std::string verb : {"ADD", "DEL"}) {
        const std::string trace = node_.dir() + "/trace";
        Variables variables = attachment(*container);
        variables.insert({{"CNI_COMMAND", verb}, {"CNI_PATH", node_.plugins()}});
        const Output output =
            run(node_.ns(), {"strace", "-f", "-qq", "-e", "trace=openat", "-o", trace, node_.plugins() + "/podlane"},
                node_.config().dump(), variables);
        EXPECT_EQ(output.rc, 0) << output.out;
        const std::string opened = read_file(trace);
        EXPECT_THAT(opened, HasSubstr(container->id() + ":eth0"));
        for (const Pod &pod : pods)
            EXPECT_THAT(opened, Not(HasSubstr(pod.container->id() + ":eth0"))) << verb;
    }
}

// Shared locks of others, one after the other, would keep the pod that returns waiting for ever.
TEST_F(HeldLeaseTest, NobodyOvertakesAPodThatWaitsForItsAddresses) {
    const auto before = come_and_go("web-0");
    const std::string turn = held_directory() + "/.turn-pods", lock = held_directory() + "/.lock-pods";
    const Pod other = make(); // the lock is there
    const Fd shared(::open(lock.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(shared);
    ASSERT_EQ(flock(shared.get(), LOCK_SH), 0);
    const auto waiting = [&](const std::string &path) {
        struct stat facts {};
        EXPECT_EQ(stat(path.c_str(), &facts), 0);
        const std::string inode = ":" + std::to_string(facts.st_ino) + " ";
        std::istringstream lines(read_file("/proc/locks"));
        int count = 0;
        for (std::string line; std::getline(lines, line);)
            count += line.find("-> FLOCK") != std::string::npos && line.find(inode) != std::string::npos ? 1 : 0;
        return count;
    };
    std::optional<Pod> again, late;
    std::thread first([&] { again.emplace(start("web-0")); });
    EXPECT_TRUE(wait_until([&] { return waiting(lock) == 1; })) << "for the one that requests a lease";
    std::thread second([&] { late.emplace(make()); });
    EXPECT_TRUE(wait_until([&] { return waiting(turn) == 1; })) << "behind it";
    EXPECT_EQ(flock(shared.get(), LOCK_UN), 0);
    first.join();
    second.join();
    EXPECT_EQ(addresses(*again), before);
}

TEST_F(HeldLeaseTest, AnAddThatCannotLookForThemFails) {
    const auto before = come_and_go("web-0");
    const auto container = node_.container();
    Variables variables = attachment(*container);
    variables.merge(named("shop", "web-0"));
    variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
    const std::string directory = held_directory();
    ASSERT_TRUE(fs::is_directory(directory));
    const std::vector<std::string> argv = {"strace",
                                           "-qq",
                                           "-o",
                                           "/dev/null",
                                           "-P",
                                           directory,
                                           "-e",
                                           "trace=?access,?faccessat",
                                           "-e",
                                           "inject=?access,?faccessat:error=EIO",
                                           node_.plugins() + "/podlane"};
    EXPECT_THAT(to_reply(run(node_.ns(), argv, node_.config(keys()).dump(), variables)),
                fails_with(5, {"looking for " + directory + ": Input/output error"}));
    EXPECT_EQ(held(), Names{"shop/web-0"});
    EXPECT_EQ(addresses(start("web-0")), before);
}

// At any system call of the DEL that holds and of the ADD that takes over; the runtime repeats its DELs, and asks for
// nothing else.
TEST_F(HeldLeaseTest, AKillLeavesNoLeaseBeyondItsTime) {
    // After a kill in a release, others wait as long as its IPAM plugin may take.
    const Json config = node_.config(keys({{"keepAddressSeconds", 1}, {"ipamTimeout", slow() ? 30 : 5}}));
    const auto call = [&](const std::string &verb, const Container &container, const std::string &name,
                          const std::vector<std::string> &strace) {
        std::vector<std::string> argv = strace;
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.merge(named("shop", name));
        variables.insert({{"CNI_COMMAND", verb}, {"CNI_PATH", node_.plugins()}});
        return run(node_.ns(), argv, config.dump(), variables);
    };
    const std::string trace = node_.dir() + "/trace";
    int pods = 0;
    for (const std::string verb : {"DEL", "ADD"}) {
        std::vector<Fault> kills;
        for (bool is_traced = true; is_traced || !kills.empty();) {
            const std::string name = "web-" + std::to_string(pods++);
            const auto old = node_.container();
            const auto fresh = node_.container();
            ASSERT_EQ(call("ADD", *old, name, {}).rc, 0);
            if (verb == "ADD") {
                ASSERT_EQ(call("DEL", *old, name, {}).rc, 0);
            }
            const Container &hit = verb == "ADD" ? *fresh : *old;
            if (is_traced) {
                ASSERT_EQ(call(verb, hit, name, {"/usr/bin/strace", "-o", trace}).rc, 0);
                kills = chosen(faults_at(calls_in(trace)).first, "held " + verb, 12);
                is_traced = false;
            } else {
                const Fault kill = kills.back();
                kills.pop_back();
                (void)call(verb, hit, name,
                           {"/usr/bin/strace", "-o", "/dev/null", "-e",
                            "inject=" + kill.call.name + ":signal=KILL:when=" + std::to_string(kill.call.number)});
            }
            for (const auto &container : {old, fresh})
                EXPECT_EQ(call("DEL", *container, name, {}).rc, 0);
        }
    }
    EXPECT_TRUE(wait_until([&] { return held().empty(); }));
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(node_.records(), IsEmpty());
}

} // namespace
} // namespace podlane::test
