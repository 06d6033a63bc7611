// SPDX-License-Identifier: MIT
// Behind another main plugin: an interface in the container that is not the one which that plugin made, or that is
// another attachment's, gets nobody else's host-side veth and leaves none without programs.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class AttackAdopt : public VerbsTest {
  protected:
    [[nodiscard]] Reply ptp(const Container &container, const std::string &ifname) const {
        const Json config = {{"cniVersion", "1.0.0"}, {"name", "theirs"}, {"type", "ptp"}, {"ipam", node_.ipam()}};
        return node_.cni("ADD", config, container, {{"CNI_IFNAME", ifname}});
    }
    [[nodiscard]] Reply chained(const std::string &command, const Container &container, const Json &previous,
                                Variables variables, const Json &more = Json::object()) const {
        Json keys = {{"ipam", nullptr}, {"prevResult", previous}};
        keys.update(more);
        return node_.cni(command, node_.config(keys), container, std::move(variables));
    }
    Pod victim(const Json &keys = Json::object()) {
        auto container = node_.container();
        const Json result = ptp(*container, "eth0").json;
        const Reply added = chained("ADD", *container, result, {{"CNI_IFNAME", "eth0"}}, keys);
        if (added.rc != 0)
            throw std::runtime_error("ADD failed: " + added.out + added.err);
        return look_at(std::move(container), result);
    }
    [[nodiscard]] interface entry(const Pod &pod) const {
        return require(open(&open_interfaces).find(pod.ifindex)).value_or(interface{});
    }
    void expect_as_before(const Pod &pod, const interface &before) const {
        const interface now = entry(pod);
        EXPECT_EQ(std::memcmp(&now, &before, sizeof now), 0);
        EXPECT_TRUE(ping(node_.ns(), pod.text4()));
    }
};

// Whoever makes a veth pair in namespaces of its own chooses the numbers of both ends.
TEST_F(AttackAdopt, ANumberOfAnothersHostVethIsNone) {
    const Pod pod = victim();
    const interface before = entry(pod);
    const auto hostile = node_.container(), nested = node_.container();
    hostile->run("ip link add net1 index " + std::to_string(record(pod).pod_ifindex) +
                 " type veth peer name foo index " + std::to_string(pod.ifindex) + " netns " + nested->path());
    hostile->run("ip link set net1 up");
    const Json previous = {{"cniVersion", "1.0.0"},
                           {"interfaces", {{{"name", "net1"}, {"sandbox", hostile->path()}}}},
                           {"ips", {{{"address", "198.51.100.7/24"}, {"interface", 0}}}}};
    const Variables net1 = {{"CNI_IFNAME", "net1"}};
    EXPECT_THAT(chained("ADD", *hostile, previous, net1), succeeds());
    EXPECT_EQ(record(Pod{.container = hostile}, "net1").ifindex, 0U);
    expect_as_before(pod, before);
    EXPECT_THAT(chained("DEL", *hostile, previous, net1), succeeds());
    expect_as_before(pod, before);
}

// The runtime's DELs remove by name what is not the plugin's.
TEST_F(AttackAdopt, AnotherInterfaceInPlaceOfThePluginsLeavesThatDown) {
    for (const bool is_replaced : {true, false}) {
        SCOPED_TRACE(is_replaced);
        const auto hostile = node_.container();
        const Json previous = ptp(*hostile, "net1").json;
        const std::string host = previous.at("interfaces").at(0).at("name");
        const auto is_up = [&] {
            return find(ip_json(node_.ns(), "link"), "ifname", host).at("flags").dump().find("\"UP\"") !=
                   std::string::npos;
        };
        for (const char *command : {"set net1 down", "set net1 name old", "set old up"})
            hostile->run("ip link " + std::string(command));
        if (is_replaced)
            hostile->run("ip link add net1 up type veth peer name foo");
        EXPECT_TRUE(is_up());
        const Variables net1 = {{"CNI_IFNAME", "net1"}};
        EXPECT_THAT(chained("ADD", *hostile, previous, net1), fails_with(7, {"is not the other end of " + host}));
        EXPECT_FALSE(is_up());
        EXPECT_THAT(chained("DEL", *hostile, previous, net1), succeeds());
        EXPECT_FALSE(is_up());
    }
}

// A main plugin without a host-side veth, and one behind it that made a pair beside.
TEST_F(AttackAdopt, AnInterfaceOfAnotherNameInTheResultIsNoReplacement) {
    const auto container = node_.container();
    node_.run("ip link add vx type veth peer name ext1 netns " + container->path());
    container->run("ip link add eth0 type veth peer name inner");
    const Json previous = {{"cniVersion", "1.0.0"},
                           {"interfaces",
                            {{{"name", "eth0"}, {"sandbox", container->path()}},
                             {{"name", "vx"}},
                             {{"name", "ext1"}, {"sandbox", container->path()}}}},
                           {"ips", {{{"address", "198.51.100.7/24"}, {"interface", 0}}}}};
    EXPECT_THAT(chained("ADD", *container, previous, {{"CNI_IFNAME", "eth0"}}), succeeds());
    EXPECT_THAT(chained("ADD", *container, previous, {{"CNI_IFNAME", "eth0"}, {"CNI_CONTAINERID", "other"}}),
                fails_with(104, {"is that of container " + container->id() + ", interface eth0"}));
    EXPECT_THAT(chained("DEL", *container, previous, {{"CNI_IFNAME", "eth0"}}), succeeds());
}

TEST_F(AttackAdopt, AnotherContainersInterfaceIsRefused) {
    const Pod pod = victim();
    const interface before = entry(pod);
    const Variables other = {{"CNI_IFNAME", "eth0"}, {"CNI_CONTAINERID", "other"}};
    EXPECT_THAT(chained("ADD", *pod.container, pod.result, other),
                fails_with(104, {"is that of container " + pod.container->id() + ", interface eth0"}));
    expect_as_before(pod, before);
    EXPECT_THAT(chained("DEL", *pod.container, pod.result, other), succeeds());
    expect_as_before(pod, before);
}

TEST_F(AttackAdopt, BySecondNameAPodKeepsItsIsolationAndLimits) {
    const Pod pod = victim({{"isolation", "network"}, {"egressRate", 8000000}, {"egressBurst", 8000000}});
    const interface before = entry(pod);
    pod.container->run("ip link property add dev eth0 altname net1");
    const Variables net1 = {{"CNI_IFNAME", "net1"}};
    for (const bool source_routing : {true, false})
        EXPECT_THAT(
            chained("ADD", *pod.container, pod.result, net1, {{"name", "loose"}, {"sourceRouting", source_routing}}),
            fails_with(104, {"interface eth0"}));
    expect_as_before(pod, before);
}

} // namespace
} // namespace podlane::test
