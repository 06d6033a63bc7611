// SPDX-License-Identifier: MIT
// What other plugins of a node hand to Podlane, and do beside it and behind it.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class OtherPlugins : public VerbsTest {};

// flannel's plugin with `"delegate": {"type": "podlane", …}`: name, MTU, masquerade, the node's ranges, and the
// network's own routes.
class Flannel : public OtherPlugins {
  protected:
    [[nodiscard]] Json delegate(const Json &keys) const {
        Json config = {{"mtu", 1370}, {"ipMasq", false}, {"ipam", node_.ipam()}};
        config["ipam"]["routes"] = {{{"dst", "198.18.0.0/16"}}, {{"dst", "2001:db8:8::/47"}}};
        config["runtimeConfig"] = {{"bandwidth", {{"ingressRate", 10000000}, {"ingressBurst", 2147483647}}}};
        config.update(keys);
        return config;
    }
    [[nodiscard]] static std::string default_gateway(const Pod &pod, bool ipv4) {
        const Json found =
            find(ip_json(pod.container->ns(), ipv4 ? "-4 route show" : "-6 route show"), "dst", "default");
        return found.is_null() ? "" : found.at("gateway").get<std::string>();
    }
};

// As kube-flannel's own configuration has it for the bridge plugin.
TEST_F(Flannel, GivesPodsADefaultRouteWithItsOwnKeys) {
    const Json keys = delegate({{"hairpinMode", true}, {"isDefaultGateway", true}});
    const std::string before = node_.state();
    const auto container = node_.container();
    const Reply added = add(*container, keys);
    ASSERT_THAT(added, succeeds());
    EXPECT_THAT(added.err, testing::HasSubstr("\"hairpinMode\" is a key of other plugins and has no effect"));
    const Pod pod = look_at(container, added.json);
    EXPECT_EQ(pod.mtu, 1370U);
    EXPECT_EQ(default_gateway(pod, true), kGateway4);
    EXPECT_EQ(default_gateway(pod, false), kGateway6);
    for (const std::string outside : {"203.0.113.2", "2001:db8:cafe::2"})
        EXPECT_TRUE(ping(container->ns(), outside, 3)) << node_.podlanectl("counter list").out;
    EXPECT_THAT(check(pod, keys), succeeds());
    const Reply deleted = del(*container, keys);
    EXPECT_THAT(deleted, succeeds());
    EXPECT_THAT(deleted.err, testing::Not(testing::HasSubstr("ignored")));
    EXPECT_EQ(node_.state(), before);
}

TEST_F(Flannel, GivesPodsADefaultRouteWithPodlanesKey) {
    const Pod with = make(delegate({{"defaultRoute", true}}));
    EXPECT_EQ(default_gateway(with, true), kGateway4);
    EXPECT_EQ(default_gateway(with, false), kGateway6);
    const Pod without = make(delegate(Json::object()));
    EXPECT_EQ(default_gateway(without, true), "") << "the lease's routes say what is reached";
}

} // namespace
} // namespace podlane::test
