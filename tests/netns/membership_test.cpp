// SPDX-License-Identifier: MIT
// Changes of groups and limits of a pod whose record is not whole, or whose DEL is under way: they are refused, or
// leave nothing behind.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <future>

namespace podlane::test {
namespace {

using testing::Contains;

class MembershipTest : public CtlTest {
  protected:
    static Json isolated(const std::string &group) { return {{"groups", {"name:" + group}}, {"isolation", "group"}}; }
    [[nodiscard]] std::string path_of(const Container &container) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + container.id() + ":eth0";
    }
    [[nodiscard]] Json groups_of(const Pod &pod) const {
        return ctl_json("endpoint show --container " + pod.container->id()).at(0).at("groups");
    }
    // Of a network with a subnet of its own.
    [[nodiscard]] Json second(const std::string &group) const {
        Json config = node_.config(isolated(group));
        config["name"] = "second";
        config["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
        return config;
    }
    [[nodiscard]] Output add_second(const Container &container, std::vector<std::string> argv) const {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container, "net1");
        variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        return run(node_.ns(), argv, second("tenant-b").dump(), variables);
    }
    void del_second(const Container &container) const {
        EXPECT_THAT(node_.cni("DEL", second("tenant-b"), container, {{"CNI_IFNAME", "net1"}}), succeeds());
    }
    // How many times an ADD of net1 opens the record of eth0 to read it, until now.
    [[nodiscard]] static int reads(const std::string &trace) {
        std::istringstream lines(fs::exists(trace) ? read_file(trace) : std::string());
        int count = 0;
        for (std::string line; std::getline(lines, line);)
            count += line.starts_with("openat(") && line.find("O_WRONLY") == std::string::npos ? 1 : 0;
        return count;
    }

    const std::string before_ = everything();
};

// Of several selected pods none is changed, and a torn file is not written again as a whole one.
TEST_F(MembershipTest, IsNotChangedWithoutAWholeRecord) {
    const Pod whole = make(isolated("tenant-a"), named("shop", "whole"));
    const Pod torn = make(isolated("tenant-a"), named("shop", "torn"));
    const Isolations isolations = open(&open_isolations);
    const std::string file = path_of(*torn.container), text = read_file(file);
    const std::size_t second_part = text.rfind("podlane-record ");
    ASSERT_GT(second_part, 0U);
    for (const std::size_t left : {text.size() - 1, second_part + 60, second_part, second_part / 2, std::size_t{0}}) {
        SCOPED_TRACE(left);
        std::ofstream(file) << text.substr(0, left);
        for (const std::string change : {"group remove tenant-a", "group add tenant-b"})
            for (const std::string whose : {" --pod torn", " --namespace shop"})
                EXPECT_THAT(ctl(change + whose), complains(1, {"no whole record in", torn.container->id()})) << change;
        EXPECT_EQ(read_file(file), text.substr(0, left));
        EXPECT_EQ(groups_of(whole), Json({"tenant-a"}));
        EXPECT_EQ(require(isolations.find(whole.ifindex))->groups[0],
                  require(isolations.find(torn.ifindex))->groups[0]);
    }
    fs::remove(file);
    EXPECT_THAT(ctl("group remove tenant-a --pod torn"), complains(1, {"no whole record in", torn.container->id()}));
    EXPECT_FALSE(fs::exists(file));
    std::ofstream(file) << text;
    EXPECT_THAT(ctl("group remove tenant-a --namespace shop"), prints(0));
    EXPECT_EQ(groups_of(torn), Json::array());
    EXPECT_EQ(require(isolations.find(torn.ifindex))->groups[0], 0U);
    for (const Pod *pod : {&whole, &torn})
        EXPECT_THAT(del(*pod->container, isolated("tenant-a")), succeeds());
    EXPECT_EQ(everything(), before_);
}

// As an ADD of another interface leaves it that cannot take its groups back.
TEST_F(MembershipTest, OfAPodInNoGroupIsFoundAndRemoved) {
    const Pod made = make();
    const Isolations isolations = open(&open_isolations);
    isolation left{};
    left.groups[0] = 1;
    require(isolations.update(made.ifindex, left));
    const Reply checked = check(made);
    EXPECT_THAT(checked, fails_with(105, {"groups in " PODLANE_MAP_ISOLATION}));
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command).out, HasSubstr(checked.message())) << command;
    EXPECT_FALSE(require(isolations.find(made.ifindex)));
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It has removed the entries of the host-side veth, and waits for its IPAM plugin: the endpoint's own is still there.
TEST_F(MembershipTest, AndLimitsAreNotChangedOfAPodThatIsBeingDeleted) {
    const std::string called = node_.dir() + "/called", hangs = node_.dir() + "/hangs";
    node_.put_plugin("slow-ipam", "#!/bin/sh\n[ $CNI_COMMAND != DEL ] || : >" + called +
                                      "\nwhile [ $CNI_COMMAND = DEL ] && [ -e " + hangs +
                                      " ]; do sleep 0.05; done\nexec " + variable("CNI_PLUGINS") + "/host-local\n");
    for (const bool is_isolated : {false, true}) {
        SCOPED_TRACE(is_isolated);
        Json keys = is_isolated ? isolated("tenant-a") : Json::object();
        keys["ipam"] = {{"type", "slow-ipam"}};
        const Pod made = make(keys), other = make();
        const std::string whose = " --container " + made.container->id();
        std::ofstream(hangs).close();
        auto deleting = std::async(std::launch::async, [&] { return del(*made.container, keys); });
        EXPECT_TRUE(wait_until([&] { return fs::exists(called); }));
        for (const std::string change : {"bandwidth set --egress 10M --ingress 10M", "bandwidth clear",
                                         "group add tenant-b", "group remove tenant-a"})
            EXPECT_THAT(ctl(change + whose), complains(1, {made.host_ifname + " is being deleted"})) << change;
        EXPECT_EQ(deleting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
        fs::remove(hangs);
        EXPECT_THAT(deleting.get(), succeeds());
        EXPECT_FALSE(limits_of(made.ifindex));
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("which belongs to no endpoint")));
        EXPECT_THAT(del(*other.container), succeeds());
        EXPECT_EQ(everything(), before_);
        fs::remove(called);
    }
}

// The ADD of a further network has read the record of the container's other interface when that one's DEL erases it.
TEST_F(MembershipTest, AnAddLeavesNoRecordOfAnInterfaceWhoseDelHasErasedIt) {
    const Pod other = make();
    int last = 0; // of the reads, the one that share_groups() goes by
    for (const std::string step : {"as the first of its network", "counted", "held up"}) {
        SCOPED_TRACE(step);
        const Pod made = make(isolated("tenant-a"));
        const std::string trace = node_.dir() + "/trace-" + made.container->id();
        std::vector<std::string> strace{"strace", "-qq",         "-o", trace, "-P", path_of(*made.container),
                                        "-e",     "trace=openat"};
        const bool is_held = step == "held up";
        if (is_held)
            strace.insert(strace.end(), {"-e", "inject=openat:delay_exit=4000000:when=" + std::to_string(last)});
        auto adding = std::async(std::launch::async, [&] { return add_second(*made.container, strace); });
        if (is_held) {
            EXPECT_TRUE(wait_until([&] { return reads(trace) == last; }));
            EXPECT_THAT(del(*made.container, isolated("tenant-a")), succeeds());
            EXPECT_EQ(adding.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
                << "the ADD was to be under way";
        }
        const Output added = adding.get();
        EXPECT_EQ(added.rc, 0) << added.out << added.err;
        if (!is_held)
            EXPECT_EQ(groups_of(made), Json({"tenant-b", "tenant-a"}));
        last = reads(trace);
        EXPECT_EQ(fs::exists(path_of(*made.container)), !is_held);
        if (!is_held)
            EXPECT_THAT(del(*made.container, isolated("tenant-a")), succeeds());
        del_second(*made.container);
        EXPECT_THAT(node_.records(), Not(Contains(made.container->id() + ":eth0")));
    }
    EXPECT_THAT(del(*other.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
