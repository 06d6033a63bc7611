// SPDX-License-Identifier: MIT
// Where a configuration asks for the node's ranges, and what host-local gets in their place.
#include "plugin/cni/pod_ranges.hpp"
#include "tests/unit/cni_request.hpp"

namespace podlane::cni {
namespace {

constexpr const char *kServer = R"(, "kubernetes": {"kubeconfig": "/a"})";

std::string config_of(const std::string &ipam, const std::string &more = kServer) {
    return config_with("\"ipam\": " + ipam + more);
}

std::uint32_t families(const std::string &config) {
    const auto request = parse(config);
    EXPECT_TRUE(request) << why(request);
    return request ? request->config.pod_ranges : ~0U;
}

TEST(CniPodRanges, AreRequestedIfHostLocalReadsARange) {
    EXPECT_EQ(families(config_of(R"({"type": "host-local", "subnet": "usePodCidr"})")), kIpv4);
    EXPECT_EQ(families(config_of(R"({"type": "host-local", "subnet": "USEPODCIDRIPV6"})")), kIpv6);
    EXPECT_EQ(families(config_of(R"({"type": "host-local", "ranges": [[{"subnet": "usePodCidr"}],
                                    [{"subnet": "usePodCidrIPv6"}]]})")),
              kIpv4 | kIpv6);
    EXPECT_EQ(families(config_of(R"({"type": "host-local", "subnet": "198.18.1.0/24"},
                                    "pools": {"blue": {"ranges": [[{"subnet": "usePodCidr"}]]}})")),
              kIpv4);
    for (const char *none :
         {R"({"type": "host-local", "subnet": "198.18.1.0/24"})", R"({"type": "calico-ipam", "subnet": "usePodCidr"})",
          R"({"type": "host-local", "ranges": "usePodCidr"})", R"({"type": "host-local", "ranges": [null, [7, []]]})",
          R"({"type": "host-local", "subnet": {"a": "usePodCidr"}})", R"({"subnet": "usePodCidr"})"})
        EXPECT_EQ(families_of_pod_ranges(json::Value::parse("{\"ipam\": " + std::string(none) + "}")), 0U) << none;
    for (const char *none : {"[]", "{}", R"({"ipam": 7})", R"({"ipam": ["usePodCidr"]})"})
        EXPECT_EQ(families_of_pod_ranges(json::Value::parse(none)), 0U) << none;
}

TEST(CniPodRanges, AddAndStatusNeedToKnowTheApiServer) {
    const std::string alone = config_of(R"({"type": "host-local", "subnet": "usePodCidr"})", "");
    for (const char *command : {"ADD", "STATUS"})
        EXPECT_THAT(why(parse(alone, command)), HasSubstr("how to reach the API server")) << command;
    EXPECT_TRUE(parse(alone, "DEL"));
}

TEST(CniPodRanges, AreFilledInAndNothingElseChanges) {
    const auto config = with_pod_ranges(
        R"({"ipam": {"type": "host-local", "subnet": "usePodCidr", "rangeStart": "198.18.1.9", "ranges":
            [[{"subnet": "usePodCidrIPv6", "mine": 1}, {"subnet": "198.18.7.0/24"}]]}, "other": "usePodCidr"})",
        {"198.18.1.0/24", "2001:db8:1::/64"});
    ASSERT_TRUE(config);
    EXPECT_EQ(json::Value::parse(*config),
              json::Value::parse(R"({"ipam": {"type": "host-local", "subnet": "198.18.1.0/24",
                                     "rangeStart": "198.18.1.9", "ranges": [[{"subnet": "2001:db8:1::/64", "mine": 1},
                                     {"subnet": "198.18.7.0/24"}]]}, "other": "usePodCidr"})"));
    const auto lacking =
        with_pod_ranges(R"({"ipam": {"type": "host-local", "subnet": "usePodCidrIPv6"}})", {"198.18.1.0/24"});
    ASSERT_FALSE(lacking);
    EXPECT_THAT(lacking.error().message, HasSubstr("no IPv6 range"));
    EXPECT_FALSE(lacking.error().hint.empty());
}

TEST(CniPodRanges, ToFindALeaseAnyRangeWillDo) {
    const auto config = with_any_ranges(R"({"ipam": {"type": "host-local", "subnet": "usePodCidr",
        "rangeStart": "198.18.1.9", "rangeEnd": "198.18.1.19", "gateway": "198.18.1.1",
        "ranges": [[{"subnet": "usePodCidrIPv6"}], [{"subnet": "198.18.7.0/24", "gateway": "198.18.7.9"}]]}})");
    ASSERT_TRUE(config);
    EXPECT_EQ(json::Value::parse(*config),
              json::Value::parse(R"({"ipam": {"type": "host-local", "subnet": "0.0.0.0/30", "ranges":
                                     [[{"subnet": "::/126"}], [{"subnet": "198.18.7.0/24", "gateway": "198.18.7.9"}]]}})"));
}

} // namespace
} // namespace podlane::cni
