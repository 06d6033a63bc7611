// SPDX-License-Identifier: MIT
// podlanectl doctor and repair where a container lives, and its interface or the path of its namespace is gone.
#include "tests/netns/doctor.hpp"

#include <sys/mount.h>

#include <csignal>

namespace podlane::test {
namespace {

using DoctorLostTest = Doctor;

// Neither a restored entry nor a GC is of use to it.
TEST_F(DoctorLostTest, NamesPodsThatLostTheirInterfaceAndTheirMaps) {
    const Pod made = make({{"ipMasq", true}});
    fs::remove_all(node_.bpffs());
    EXPECT_TRUE(find(findings(), "check", "dead").is_null());
    on_node("ip link del " + made.host_ifname);
    const Json found = find(findings(), "check", "dead");
    ASSERT_TRUE(found.is_object());
    EXPECT_THAT(found.at("finding").get<std::string>(),
                HasSubstr("the host-side veth of container " + made.container->id() + ", eth0 is gone"));
    EXPECT_THAT(found.at("remedy").get<std::string>(), HasSubstr("delete the pod's sandbox"));
    EXPECT_EQ(ctl("repair").rc, 1);
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"nothing to collect"}));
    EXPECT_THAT(del(*made.container, {{"ipMasq", true}}), succeeds());
    EXPECT_THAT(findings(), testing::IsEmpty());
}

// The runtime's path was unmounted, or was that of a process that has ended, while another one is in the container.
TEST_F(DoctorLostTest, RepairsAPodWhosePathIsGone) {
    const Pod made = make(Json::object());
    const std::string inside = must_run(made.ns(), {"sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"});
    ASSERT_EQ(umount2(made.container->path().c_str(), MNT_DETACH), 0);
    made.container->run("ip route flush table main");
    EXPECT_THAT(ctl("repair"), prints(0, {"fixed"}));
    EXPECT_THAT(findings(), testing::IsEmpty());
    EXPECT_TRUE(ping(node_.ns(), made.text4()));
    EXPECT_EQ(kill(std::stoi(inside), SIGKILL), 0);
}

// Its routes have another metric than those of the first one, to the same destination.
TEST_F(DoctorLostTest, RepairsTheRoutesOfASecondInterface) {
    const Pod made = make(Json::object());
    const Variables net1 = {{"CNI_IFNAME", "net1"}};
    const Json other = {{"name", "other"},
                        {"ipam", {{"ranges", {{{{"subnet", "198.18.44.0/24"}}}, {{{"subnet", "2001:db8:44::/64"}}}}}}}};
    ASSERT_THAT(add(*made.container, other, net1), succeeds());
    const std::string before =
        made.container->run("ip route show dev net1") + made.container->run("ip -6 route show dev net1");
    for (const std::string change : {"ip route flush dev net1", "ip addr flush dev net1", "ip link set net1 down"}) {
        SCOPED_TRACE(change);
        made.container->run(change);
        EXPECT_THAT(ctl("repair"), prints(0, {"fixed"}));
        EXPECT_THAT(findings(), testing::IsEmpty());
        EXPECT_EQ(made.container->run("ip route show dev net1") + made.container->run("ip -6 route show dev net1"),
                  before);
    }
    EXPECT_THAT(del(*made.container, other, net1), succeeds());
}

} // namespace
} // namespace podlane::test
