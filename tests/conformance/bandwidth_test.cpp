// SPDX-License-Identifier: MIT
// The cases of the reference plugin `bandwidth` with its configurations, Podlane in its place behind ptp; and the
// operator's limit beside the pod's. docs/BANDWIDTH.md lists the differences.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class BandwidthConformance : public VerbsTest {
  protected:
    [[nodiscard]] Json podlane(Json keys) const {
        keys.update({{"type", "podlane"}, {"bpffs", node_.bpffs()}});
        return keys;
    }
    [[nodiscard]] Json ptp() const { return {{"type", "ptp"}, {"ipam", node_.ipam()}}; }
    // Rates and bursts of the endpoint; all 0 if it has none.
    [[nodiscard]] std::vector<std::uint64_t> limits(std::uint32_t ifindex) const {
        const auto found = limits_of(ifindex);
        if (!found)
            return {0, 0, 0, 0};
        return {found->ingress_rate_bits_per_s, found->ingress_burst_bits, found->egress_rate_bits_per_s,
                found->egress_burst_bits};
    }
    // The limits that Podlane sets behind ptp with these keys; DEL removes them.
    std::vector<std::uint64_t> behind_ptp(const Json &keys, const std::string &version = "1.0.0") {
        Chain chain(node_, {ptp(), podlane(keys)}, version);
        auto container = node_.container();
        const Reply reply = chain.add(*container);
        EXPECT_EQ(reply.rc, 0) << reply;
        if (reply.rc != 0)
            return {};
        const Pod made = look_at(container, reply.json);
        if (version >= "0.4.0") {
            EXPECT_THAT(chain.check(*container), succeeds());
        }
        auto found = limits(made.ifindex);
        EXPECT_EQ(chain.del(*container).rc, 0);
        EXPECT_EQ(limits(made.ifindex), std::vector<std::uint64_t>(4, 0)) << "left by DEL";
        return found;
    }
    using Limits = std::vector<std::uint64_t>;
};

const Json kBoth = {{"ingressRate", 8}, {"ingressBurst", 8}, {"egressRate", 16}, {"egressBurst", 8}};

TEST_F(BandwidthConformance, LimitsBothDirectionsInEachVersion) {
    for (const char *version : {"0.3.0", "0.3.1", "0.4.0", "1.0.0"}) {
        SCOPED_TRACE(version);
        EXPECT_EQ(behind_ptp(kBoth, version), (Limits{8, 8, 16, 8}));
    }
}

TEST_F(BandwidthConformance, LimitsOneDirectionWhileTheOtherIsZero) {
    EXPECT_EQ(behind_ptp({{"ingressRate", 0}, {"ingressBurst", 0}, {"egressRate", 8000}, {"egressBurst", 80}}),
              (Limits{0, 0, 8000, 80}));
    EXPECT_EQ(behind_ptp({{"egressRate", 0}, {"egressBurst", 0}, {"ingressRate", 8000}, {"ingressBurst", 80}}),
              (Limits{8000, 80, 0, 0}));
}

TEST_F(BandwidthConformance, TakesTheLimitsOfTheRuntime) {
    const Json runtime = {
        {"bandwidth", {{"ingressRate", 8}, {"ingressBurst", 8}, {"egressRate", 16}, {"egressBurst", 9}}}};
    EXPECT_EQ(behind_ptp({{"runtimeConfig", runtime}}), (Limits{8, 8, 16, 9}));
}

TEST_F(BandwidthConformance, RefusesABurstWithoutItsRateAlsoBesideARuntimesLimits) {
    Json keys = {{"ingressRate", 0}, {"ingressBurst", 123}, {"egressRate", 123}, {"egressBurst", 123}};
    for (const bool runtime : {false, true}) {
        if (runtime)
            keys["runtimeConfig"]["bandwidth"] = kBoth;
        Chain chain(node_, {ptp(), podlane(keys)});
        const auto container = node_.container();
        EXPECT_THAT(chain.add(*container), fails_with(7, {"ingressBurst is 123, expected ingressRate"}));
        EXPECT_EQ(chain.del(*container).rc, 0);
    }
}

TEST_F(BandwidthConformance, FindsTheContainersPeerAmongSeveralHostInterfaces) {
    node_.run("ip link add other0 type veth peer name other1");
    const auto container = node_.container();
    const Reply made = succeeded(node_.cni(
        "ptp", "ADD",
        [&] {
            Json config = ptp();
            config.update({{"cniVersion", "1.0.0"}, {"name", "pods"}});
            return config;
        }(),
        attachment(*container)));
    const std::uint32_t peer = pod_link(*container).at("link_index");

    for (const bool named : {true, false}) { // the peer need not be in the result: the kernel knows it
        Json result = made.json;
        result["interfaces"][0]["name"] = named ? made.json["interfaces"][0]["name"] : Json("other1");
        Json config = podlane(kBoth);
        config.update({{"cniVersion", "1.0.0"}, {"name", "pods"}, {"prevResult", result}});
        EXPECT_THAT(node_.cni("ADD", config, *container), succeeds());
        EXPECT_EQ(limits(peer), (Limits{8, 8, 16, 8}));
        EXPECT_EQ(node_.cni("DEL", config, *container).rc, 0);
    }
    node_.run("ip link del other0");
}

TEST_F(BandwidthConformance, RefusesAnInterfaceWithoutAHostSideVeth) {
    const auto container = node_.container();
    container->run("ip link add eth0 type bridge");
    container->run("ip addr add 198.18.9.2/24 dev eth0");
    Json config = podlane(kBoth);
    config.update({{"cniVersion", "1.0.0"},
                   {"name", "pods"},
                   {"prevResult",
                    {{"cniVersion", "1.0.0"},
                     {"interfaces", {{{"name", "eth0"}, {"sandbox", container->path()}}}},
                     {"ips", {{{"address", "198.18.9.2/24"}, {"interface", 0}}}}}}});
    EXPECT_THAT(node_.cni("ADD", config, *container), fails_with(2));
}

TEST_F(BandwidthConformance, CreatesTheInterfaceIfTheResultHasNone) {
    const auto container = node_.container();
    Json config = podlane(kBoth);
    config.update({{"cniVersion", "1.0.0"},
                   {"name", "pods"},
                   {"prevResult", {{"cniVersion", "1.0.0"}, {"ips", {{{"address", "198.18.9.2/24"}}}}}}});
    const Reply reply = succeeded(node_.cni("ADD", config, *container));
    EXPECT_EQ(limits(look_at(container, reply.json).ifindex), (Limits{8, 8, 16, 8}));
    EXPECT_EQ(node_.cni("DEL", config, *container).rc, 0);
}

// Not as with the reference plugin, unless limitRule says so.
TEST_F(BandwidthConformance, ThePodLowersTheOperatorsLimitAtMost) {
    const Json runtime = {
        {"bandwidth", {{"ingressRate", 4000}, {"ingressBurst", 40}, {"egressRate", 9000}, {"egressBurst", 90}}}};
    Json keys = {{"ingressRate", 8000}, {"ingressBurst", 80}, {"egressRate", 8000}, {"egressBurst", 80}};
    keys["runtimeConfig"] = runtime;
    EXPECT_EQ(behind_ptp(keys), (Limits{4000, 40, 8000, 80}));
    keys["limitRule"] = "static";
    EXPECT_EQ(behind_ptp(keys), (Limits{8000, 80, 8000, 80}));
}

TEST_F(BandwidthConformance, AnAnnotationForOneDirectionLeavesTheOperatorsOther) {
    Json keys = {{"ingressRate", 8000}, {"ingressBurst", 80}};
    keys["runtimeConfig"]["io.kubernetes.cri.pod-annotations"] = {{"kubernetes.io/egress-bandwidth", "1M"}};
    EXPECT_EQ(behind_ptp(keys), (Limits{8000, 80, 1000000, 0x7fffffff}));
}

} // namespace
} // namespace podlane::test
