// SPDX-License-Identifier: MIT
// Readers of the runtime's networks, whoever wrote them, and of the kernel's lists of locks and mounts.
#include "loader/lock_file.hpp"
#include "tools/podlanectl/node/runtime_network.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl {
namespace {

std::optional<RuntimeNetwork> network_of(const std::string &text) {
    return podlane_network(foreign_network("10-pods.conflist", text), text, "/nowhere");
}

TEST(RuntimeNetwork, ANullAmongThePluginsIsPassedOver) {
    const auto network = network_of(R"({"name": "pods", "plugins": [null, {"type": "podlane", "clusterCIDRs": [null,
        "198.18.0.0/16"], "ipam": {"ranges": [null, [null, {"subnet": "198.18.1.0/24"}]]}}, null]})");
    ASSERT_TRUE(network);
    EXPECT_EQ(network->name, "pods");
    EXPECT_TRUE(network->makes_links);
    ASSERT_EQ(network->ranges.size(), 1U);
    EXPECT_EQ(to_string(network->ranges[0]), "198.18.1.0/24");
    ASSERT_EQ(network->clusters.size(), 1U);
    EXPECT_EQ(to_string(network->clusters[0]), "198.18.0.0/16");
}

TEST(RuntimeNetwork, WithoutPodlaneIsNone) {
    for (const char *text : {"", "{}", "[]", R"({"plugins": null})", R"({"plugins": [null]})",
                             R"({"name": "pods", "plugins": [{"type": "ptp"}]})", R"({"type": "bridge"})"})
        EXPECT_FALSE(network_of(text)) << text;
}

TEST(LockHolders, AreNumbersOfProcesses) {
    EXPECT_THAT(lock_holders_in("1: FLOCK  ADVISORY  WRITE 1234 00:2c:17 0 EOF\n"
                                "1: -> FLOCK  ADVISORY  WRITE 1240 00:2c:17 0 EOF\n"
                                "2: POSIX  ADVISORY  READ 880 00:2c:17 0 EOF\n"
                                "3: FLOCK  ADVISORY  READ 77 00:2c:18 0 EOF\n"
                                "4: FLOCK  ADVISORY  READ ../1 00:2c:17 0 EOF\n"
                                "5: FLOCK  ADVISORY  READ -1 00:2c:17 0 EOF\n",
                                "00:2c:17"),
                ElementsAre("1234"));
}

TEST(LockHolders, ANameThatAProcessHasChosenIsSafeToPrint) {
    EXPECT_EQ(command_in("podlane\n"), "podlane");
    EXPECT_EQ(command_in("\x1b[2J\xff\nrest\n"), "?[2J?");
    EXPECT_EQ(command_in(""), "");
}

TEST(MountedNamespaces, AreThoseOfTheNetwork) {
    const auto found = mounted_namespaces("22 28 0:21 / /sys rw shared:7 - sysfs sysfs rw\n"
                                          "493 26 0:4 net:[4026532511] /run/netns/a rw shared:251 - nsfs nsfs rw\n"
                                          "494 26 0:4 net:[4026532511] /run/netns/b rw shared:251 - nsfs nsfs rw\n"
                                          "530 26 0:4 mnt:[4026532700] /run/ns/mnt rw - nsfs nsfs rw\n"
                                          "531 26 0:4 net:[");
    EXPECT_THAT(found, ElementsAre(std::pair<const std::uint64_t, std::string>(4026532511U, "/run/netns/a")));
}

// gc removes no attachment whose namespace a process may have and hide.
TEST(ShownNamespaces, OfAProcessIsNoneBesideHiddenOnes) {
    AttachmentRecord record;
    record.netns = "/proc/4242/ns/net";
    EXPECT_TRUE(shows_namespace_of(record, false));
    EXPECT_FALSE(shows_namespace_of(record, true));
    record.entry = endpoint{};
    EXPECT_FALSE(shows_namespace_of(record, true));
    record.entry->ifindex = 7; // its host-side veth goes with the namespace
    EXPECT_TRUE(shows_namespace_of(record, true));
    record.netns = "/tmp/of-a-runtime";
    EXPECT_TRUE(shows_namespace_of(record, true));
    record.netns = "/no-such-directory/of-a-runtime";
    EXPECT_FALSE(shows_namespace_of(record, false));
}

} // namespace
} // namespace podlane::ctl
