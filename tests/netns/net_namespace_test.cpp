// SPDX-License-Identifier: MIT
// Namespaces are opened by any path, entered and left; sysctls are those of the namespace one is in.
#include "net_fixture.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace podlane::net::test {
namespace {

std::string temporary_path(const char *name) {
    return testing::TempDir() + "podlane-net-" + std::to_string(getpid()) + "-" + name;
}

TEST(NamespaceTest, OpensAnyPathToANetworkNamespace) {
    const Namespace made = new_namespace();
    const Namespace again = require(Namespace::open("/proc/self/fd/" + std::to_string(made.fd())));
    EXPECT_EQ(again.inode(), made.inode());
    EXPECT_EQ(require(Namespace::open("/proc/" + std::to_string(getpid()) + "/ns/net")), require(Namespace::current()));
}

TEST(NamespaceTest, TellsAMissingPathFromOneThatIsNoNamespace) {
    EXPECT_THAT(Namespace::open(temporary_path("missing")), is_error(ErrorCode::missing));

    const std::string file = temporary_path("file");
    std::ofstream(file) << "left behind by a runtime";
    for (const std::string &path : {file, std::string("/proc/self/ns/mnt"), std::string("/dev/null")})
        EXPECT_THAT(Namespace::open(path), is_error(ErrorCode::invalid_environment, {path}));
    std::filesystem::remove(file);
}

TEST(NamespaceTest, EntersAndComesBack) {
    const std::uint64_t home = require(Namespace::current()).inode();
    const Namespace other = new_namespace();
    {
        Entered first = require(enter(other));
        const Entered moved = std::move(first);
        EXPECT_EQ(require(Namespace::current()), other);
    }
    EXPECT_EQ(require(Namespace::current()).inode(), home);
}

TEST(NamespaceTest, WorksInAnotherNamespaceWithoutLeavingItsOwn) {
    const Namespace home = require(Namespace::current());
    const Namespace other = new_namespace();
    std::uint64_t inside = 0;

    const Result<void> done = in_namespace(other, [&]() -> Result<void> {
        inside = require(Namespace::current()).inode();
        return Error{ErrorCode::internal, "of the work"};
    });

    EXPECT_EQ(inside, other.inode());
    EXPECT_EQ(require(Namespace::current()), home);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "of the work");
}

TEST_F(NetTest, NetlinkStaysWhereItWasOpened) {
    const Veth made = veth();
    EXPECT_FALSE(require(find_link(pod_, "cali0")));
    EXPECT_TRUE(require(find_link(pod_, "eth0")));
    EXPECT_EQ(require(find_link(node_, "cali0"))->ifindex, made.host.ifindex);
    EXPECT_FALSE(require(find_link(node_, "eth0")));
}

TEST_F(NetTest, SysctlsAreThoseOfTheNamespace) {
    const SysctlPath forwarding{"net", "ipv6", "conf", "all", "forwarding"};
    EXPECT_TRUE(require(write_sysctl_if_different(forwarding, "1")));
    EXPECT_FALSE(require(write_sysctl_if_different(forwarding, "1")));
    EXPECT_EQ(require(read_sysctl(forwarding)), "1");
    const Entered in_pod = require(enter(pod_ns_));
    EXPECT_EQ(require(read_sysctl(forwarding)), "0");
}

TEST_F(NetTest, SysctlOfAnInterfaceWithADotInItsName) {
    VethSpec dotted = spec();
    dotted.host_ifname = "cali0.7";
    require(create_veth(node_, dotted));
    const SysctlPath rp_filter{"net", "ipv4", "conf", "cali0.7", "rp_filter"};
    require(write_sysctl_if_different(rp_filter, "2"));
    EXPECT_EQ(require(read_sysctl(rp_filter)), "2");
}

TEST_F(NetTest, SysctlPathsDoNotLeaveTheirDirectory) {
    EXPECT_EQ(require(read_sysctl({"net", "ipv4", "no_such_setting"})), std::nullopt);
    EXPECT_EQ(write_sysctl_if_different({"net", "ipv4", "conf", "gone", "rp_filter"}, "0").error().code,
              ErrorCode::missing);
    for (const char *component : {"..", ".", "", "ipv4/conf"})
        EXPECT_FALSE(read_sysctl({"net", component, "ip_forward"})) << component;
}

} // namespace
} // namespace podlane::net::test
