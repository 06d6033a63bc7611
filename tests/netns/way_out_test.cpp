// SPDX-License-Identifier: MIT
// Errors that a lease, a full disk or lost pins cause: each has the code of its cause, and a way out.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class WayOutTest : public CtlTest {
  protected:
    // After an IPAM plugin that the runtime called.
    [[nodiscard]] Reply add_with(const Json &result) {
        return add(*node_.container(), {{"ipam", nullptr}, {"prevResult", result}});
    }
    void expect_refused(const Json &result, int code, const std::string &says) {
        SCOPED_TRACE(result.dump());
        const Reply reply = add_with(result);
        EXPECT_THAT(reply, fails_with(code, {says}));
        if (code == 103) {
            EXPECT_THAT(reply.details(), HasSubstr("the plugin before"));
        }
    }
    static Json leased(const std::string &address) { return {{"ips", {{{"address", address}}}}}; }
    static Json with_route(const Json &route) {
        Json result = leased("198.18.9.77/24");
        result["routes"] = Json::array({route});
        return result;
    }
};

TEST_F(WayOutTest, OfALeaseThatNoPodCanHave) {
    expect_refused(leased("224.0.0.7/24"), 103, "is no unicast address");
    expect_refused(leased("169.254.7.7/24"), 103, "is link-local");
    Json many{{"ips", Json::array()}};
    for (int i = 1; i <= 17; ++i)
        many["ips"].push_back({{"address", "198.18.9." + std::to_string(i) + "/24"}});
    expect_refused(many, 103, "17 addresses, at most 16");
    Json own = leased("198.18.9.77/24");
    own["ips"][0]["gateway"] = "198.18.9.77";
    expect_refused(own, 103, "198.18.9.77/24 is its own gateway");
}

TEST_F(WayOutTest, OfRoutesThatLeadNowhere) {
    expect_refused(with_route({{"dst", "192.0.2.0/24"}, {"mtu", 10}}), 103, "has mtu 10, at least 68 are needed");
    expect_refused(with_route({{"dst", "192.0.2.0/24"}, {"mtu", 1501}}), 103, "has mtu 1501, and the pod's interface");
    EXPECT_THAT(add_with(with_route({{"dst", "192.0.2.0/24"}, {"mtu", 68}})), succeeds());
}

TEST_F(WayOutTest, ARouteThatIsThereTwiceIsWarnedOf) {
    Json result = with_route({{"dst", "192.0.2.0/24"}});
    result["routes"].push_back(result["routes"][0]);
    const Reply reply = add_with(result);
    EXPECT_THAT(reply, succeeds());
    EXPECT_THAT(reply.err, HasSubstr("route 192.0.2.0/24 is there twice"));
    result["routes"][1]["priority"] = 7;
    result["ips"][0]["address"] = "198.18.9.78/24";
    EXPECT_EQ(add_with(result).err.find("twice"), std::string::npos);
}

TEST_F(WayOutTest, OfAnInterfaceOfNoNumber) {
    Json result = leased("198.18.9.77/24");
    result["interfaces"] = {{{"name", "eth0"}, {"sandbox", "/run/netns/x"}}};
    for (const Json &index : {Json(-1), Json(1), Json("0")}) {
        result["ips"][0]["interface"] = index;
        expect_refused(result, 7,
                       "prevResult.ips[0].interface is " + index.dump() +
                           ", expected the number of one of the 1 interfaces, from 0");
    }
}

TEST_F(WayOutTest, OfCheckWithoutPins) {
    const Pod made = make();
    fs::remove_all(node_.bpffs());
    const Reply reply = check(made);
    EXPECT_NE(reply.rc, 0);
    EXPECT_THAT(reply.details(), HasSubstr("podlanectl repair"));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_THAT(check(made), succeeds());
}

TEST_F(WayOutTest, OfAFullDisk) {
    const std::string disk = node_.dir() + "/disk";
    fs::create_directory(disk);
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k"), 0);
    const Json keys = {{"stateDir", disk + "/state"}, {"cniVersion", "1.1.0"}};
    const auto status = [&] { return node_.cni("podlane", "STATUS", node_.config(keys)); };
    EXPECT_THAT(status(), succeeds());
    std::ofstream(disk + "/fill") << std::string(std::size_t{1} << 20U, 'x');
    for (const bool has_directory : {true, false}) {
        if (!has_directory)
            fs::remove_all(disk + "/state");
        std::ofstream(disk + "/fill", std::ios::app) << std::string(std::size_t{1} << 20U, 'x');
        const Reply reply = status();
        EXPECT_THAT(reply, fails_with(50, {disk, "No space left on device"}));
        EXPECT_THAT(reply.details(), AllOf(HasSubstr("make room"), HasSubstr("ENOSPC")));
        const Reply refused = add(*node_.container(), keys);
        EXPECT_THAT(refused, fails_with(5, {disk, "No space left on device"}));
        EXPECT_THAT(refused.details(), HasSubstr("make room"));
    }
    umount2(disk.c_str(), MNT_DETACH);
}

// Where host-local keeps its leases.
TEST_F(WayOutTest, OfADirectoryOfLeasesThatCannotBeWritten) {
    const std::string disk = node_.dir() + "/leases";
    fs::create_directory(disk);
    const Json keys = {{"ipam", {{"dataDir", disk}}}};
    const std::vector<std::array<std::string, 3>> cases = {{"", "no space left on device", "make room"},
                                                           {"ro,", "read-only file system", "for writing"}};
    for (const auto &[read_only, says, way_out] : cases) {
        SCOPED_TRACE(says);
        node_.run("mount -t tmpfs -o " + read_only + "size=64k tmpfs " + disk);
        if (read_only.empty())
            std::ofstream(disk + "/fill") << std::string(std::size_t{1} << 20U, 'x');
        const Reply reply = add(*node_.container(), keys);
        umount2(disk.c_str(), MNT_DETACH);
        EXPECT_THAT(reply, fails_with(103, {"host-local", says}));
        EXPECT_THAT(reply.details(), AllOf(HasSubstr(way_out), testing::Not(HasSubstr("correct \"ipam\""))));
    }
}

// Rather than a signal that ends the call without a word.
TEST_F(WayOutTest, OfALimitOfTheSizeOfFiles) {
    const auto container = node_.container();
    Variables variables = attachment(*container);
    variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
    const Reply reply = to_reply(
        run(node_.ns(), {"prlimit", "--fsize=0", node_.plugins() + "/podlane"}, node_.config().dump(), variables));
    EXPECT_THAT(reply, fails_with(5, {kStateDirectory, "File too large"}));
    EXPECT_THAT(reply.details(), HasSubstr("ulimit -f"));
    const std::string list =
        "exec prlimit --fsize=0 " + variable("PODLANECTL_BIN") + " doctor --bpffs " + node_.bpffs() + " >";
    EXPECT_THAT(run(node_.ns(), {"sh", "-c", list + node_.dir() + "/file"}), complains(1, {"File too large"}));
}

// An ADD that was killed left it: its DEL knows it by the record.
TEST_F(WayOutTest, OfAnInterfaceOfAnEarlierAdd) {
    const Pod made = make();
    (void)require(open(&open_endpoints).remove(require(make_endpoint_key(made.container->id(), "eth0"))));
    const Reply again = add(*made.container);
    EXPECT_THAT(again, fails_with(104, {"has an interface eth0 already"}));
    EXPECT_THAT(again.details(), AllOf(HasSubstr("DEL comes before a second ADD"), Not(HasSubstr("remove it"))));
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(add(*made.container), succeeds());
    const auto foreign = node_.container();
    foreign->run("ip link add eth0 type veth peer name eth1");
    EXPECT_THAT(add(*foreign).details(), HasSubstr("remove it, or choose another CNI_IFNAME"));
    const Reply loopback = add(*foreign, Json::object(), {{"CNI_IFNAME", "lo"}});
    EXPECT_THAT(loopback, fails_with(104, {"has an interface lo already"}));
    EXPECT_THAT(loopback.details(), AllOf(HasSubstr("choose another CNI_IFNAME"), Not(HasSubstr("remove it"))));
}

TEST_F(WayOutTest, OfARateInAnotherUnit) {
    const Pod made = make();
    const std::string set = "bandwidth set " + made.host_ifname;
    const Output low = ctl(set + " --ingress 1");
    EXPECT_THAT(low, prints(0));
    EXPECT_THAT(low.err, has_all({"warning: --ingress is 1 bit/s, less than a packet a second", "as in 10M"}));
    for (const char *rate : {"0", "1k", "10M"})
        EXPECT_EQ(ctl(set + " --ingress " + rate).err, "") << rate;
}

TEST_F(WayOutTest, OfAWordThatSelectsNothing) {
    (void)make();
    for (const std::string verb : {"list", "release --all"})
        EXPECT_THAT(ctl("lease " + verb + " --state-dir " + node_.dir() + "/nope"),
                    complains(1, {"--state-dir: there is no directory " + node_.dir() + "/nope", "\"stateDir\""}));
    EXPECT_THAT(ctl("lease list --state-dir /etc/passwd"), complains(1, {"there is no directory /etc/passwd"}));
    EXPECT_THAT(ctl("history list 5"), complains(1, {"no call of \"5\" is in the history", "--last N"}));
    EXPECT_THAT(ctl("history list --last 5"), prints(0, {"ADD"}));
}

TEST_F(WayOutTest, OfALeaseThatIsNotThere) {
    EXPECT_THAT(ctl("lease list"), prints(0));
    const Output output = ctl("lease list --pod nope");
    EXPECT_EQ(output.rc, ctl("endpoint show nope").rc);
    EXPECT_NE(output.rc, 0);
    EXPECT_THAT(output.err, HasSubstr("no such lease is held or waits"));
}

} // namespace
} // namespace podlane::test
