// SPDX-License-Identifier: MIT
// The reference plugin `bandwidth` in the same list: before Podlane and behind it, and the limits of both hold.
#include "tests/netns/limits.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {
namespace {

// A burst that is soon over.
constexpr std::uint64_t kBurst = 400000;

Json reference(std::uint64_t ingress, std::uint64_t egress) {
    Json keys = limits(ingress, egress, kBurst);
    keys["type"] = "bandwidth";
    return keys;
}

class LimitChain : public LimitTest {
  protected:
    [[nodiscard]] Json ptp() { return {{"type", "ptp"}, {"ipam", lab_.node().ipam()}}; }
    [[nodiscard]] Json podlane(Json keys) {
        keys["ipam"] = nullptr;
        return lab_.node().config(keys);
    }
    // Plugins of an example in the documentation, as they are there but for the directories.
    [[nodiscard]] std::vector<Json> example(const std::string &name) {
        std::vector<Json> plugins = Json::parse(source_text("docs/examples/" + name)).at("plugins");
        plugins.at(0).update({{"bpffs", lab_.node().bpffs()}, {"ipam", lab_.node().ipam()}});
        return plugins;
    }
    void expect_both(const Pod &limited, const Pod &free) {
        const std::string qdiscs = lab_.node().run("tc qdisc show dev " + limited.host_ifname);
        EXPECT_THAT(qdiscs, has_all({"qdisc tbf 1: root", "qdisc ingress ffff:"}));
        expect_rates(limited, free);
    }
    // From the pod, to it, and from the node to it.
    void expect_rates(const Pod &limited, const Pod &free) {
        expect_rate(goodput(limited.ns(), free.v4, free.ns(), 2));
        expect_rate(goodput(free.ns(), limited.v4, limited.ns(), 2));
        expect_rate(goodput(lab_.node().ns(), limited.v4, limited.ns(), 2));
    }
};

TEST_F(LimitChain, TheSmallerLimitHoldsBeforePodlane) {
    const Pod free = lab_.add_pod();
    const auto list = [&](std::uint64_t own_in, std::uint64_t own_out, std::uint64_t in, std::uint64_t out) {
        return std::vector<Json>{ptp(), reference(in, out), podlane(limits(own_in, own_out))};
    };
    if (!kernel_can_tcx()) {
        Chain chain(lab_.node(), list(kRate, kRate, kRate, kRate));
        const auto container = lab_.node().container();
        const Reply reply = chain.add(*container);
        EXPECT_EQ(reply.code(), 50) << reply;
        EXPECT_NE(reply.message().find("`ingress`"), std::string::npos) << reply;
        EXPECT_EQ(chain.del(*container).rc, 0);
        return;
    }
    for (const bool own : {true, false}) {
        const std::uint64_t here = own ? kRate : 2 * kRate, there = own ? 2 * kRate : kRate;
        SCOPED_TRACE(own ? "the limit of podlane is the smaller one" : "that of the reference plugin is");
        const Pod limited = lab_.add_pod(list(here, here, there, there));
        expect_both(limited, free);
        EXPECT_THAT(limited.chain->check(*limited.container), succeeds());
    }
    const Pod without = lab_.add_pod(list(0, 0, kRate, kRate));
    expect_both(without, free);
}

TEST_F(LimitChain, AnIngressLimitBeforePodlaneNeedsNoTcx) {
    const Pod free = lab_.add_pod();
    const Pod limited = lab_.add_pod(std::vector<Json>{ptp(), reference(kRate, 0), podlane(limits(2 * kRate, kRate))});
    EXPECT_NE(lab_.node().run("tc qdisc show dev " + limited.host_ifname).find("qdisc tbf 1: root"), std::string::npos);
    expect_rate(goodput(free.ns(), limited.v4, limited.ns(), 2));
    EXPECT_LT(goodput(limited.ns(), free.v4, free.ns(), 2), 1.1 * static_cast<double>(kRate));
}

TEST_F(LimitChain, ForcedClsactBehindItIsRefused) {
    Json keys = limits(kRate, kRate);
    keys["attach"] = "clsact";
    Chain chain(lab_.node(), std::vector<Json>{ptp(), reference(kRate, kRate), podlane(keys)});
    const auto container = lab_.node().container();
    const Reply reply = chain.add(*container);
    EXPECT_NE(reply.rc, 0);
    EXPECT_NE((reply.message() + reply.details()).find("ingress"), std::string::npos) << reply;
    EXPECT_EQ(chain.del(*container).rc, 0);
}

// As documented: its place is left to the plugin, and its qdiscs see everything.
TEST_F(LimitChain, TheSmallerLimitHoldsBehindPodlane) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    const Pod free = lab_.add_pod();
    for (const bool own : {true, false}) {
        const std::uint64_t here = own ? kRate : 2 * kRate, there = own ? 2 * kRate : kRate;
        SCOPED_TRACE(own ? "the limit of podlane is the smaller one" : "that of the reference plugin is");
        std::vector<Json> plugins = example("before-bandwidth.conflist");
        ASSERT_EQ(plugins.size(), 2U);
        ASSERT_EQ(plugins[1]["type"], "bandwidth");
        plugins[0].update(limits(here, here));
        plugins[1].update(limits(there, there, kBurst));
        const Pod limited = lab_.add_pod(plugins);
        expect_both(limited, free);
    }
}

// The host stack takes the socket from a packet that it forwards: the limiter does not know its sender then.
TEST_F(LimitChain, TheSlowPathKeepsTheRateAsWell) {
    const Pod free = lab_.add_pod();
    Json keys = limits(kRate, kRate);
    keys["fastPath"] = "off";
    const Pod limited = lab_.add_pod(keys);
    expect_rates(limited, free);
}

// The runtime's values go to both.
TEST_F(LimitChain, BothTakeTheLimitsOfTheRuntime) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    const Pod free = lab_.add_pod();
    const Pod limited =
        lab_.add_pod(example("before-bandwidth.conflist"), {{"bandwidth", limits(kRate, kRate, kBurst)}});
    expect_both(limited, free);
    EXPECT_GT(state(limited, LIMIT_EGRESS).bytes, 0U);
}

} // namespace
} // namespace podlane::test
