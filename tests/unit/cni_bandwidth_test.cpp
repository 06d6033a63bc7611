// SPDX-License-Identifier: MIT
// Bandwidth limits: who wins, which pairs are valid, and Kubernetes quantities.
#include "plugin/cni/bandwidth.hpp"
#include "tests/harness/test.hpp"

#include <limits>

namespace podlane::cni {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

Result<std::optional<Bandwidth>> read(const std::string &text) {
    const json::Value document = json::Value::parse(text, nullptr, false);
    return read_bandwidth(json::Node(&document, {}));
}

void expect_limits(const std::string &text, std::uint64_t ingress_rate, std::uint64_t ingress_burst,
                   std::uint64_t egress_rate, std::uint64_t egress_burst) {
    const auto limits = read(text);
    ASSERT_TRUE(limits) << text << ": " << limits.error().message;
    const Bandwidth given = limits->value_or(Bandwidth{});
    EXPECT_EQ(given.ingress_rate, ingress_rate) << text;
    EXPECT_EQ(given.ingress_burst, ingress_burst) << text;
    EXPECT_EQ(given.egress_rate, egress_rate) << text;
    EXPECT_EQ(given.egress_burst, egress_burst) << text;
}

TEST(CniBandwidth, ReadsEachSourceOfLimits) {
    expect_limits(R"({"ingressRate": 1, "ingressBurst": 2, "egressRate": 3, "egressBurst": 4})", 1, 2, 3, 4);
    expect_limits(R"({"bandwidth": {"egressRate": 3, "egressBurst": 4}})", 0, 0, 3, 4);
    expect_limits(R"({"runtimeConfig": {"bandwidth": {"IngressRate": 5, "IngressBurst": 6}}})", 5, 6, 0, 0);
    expect_limits(
        R"({"ingressRate": 1, "ingressBurst": 2, "runtimeConfig": {"Bandwidth": {"egressRate": 3, "egressBurst": 4}}})",
        1, 2, 3, 4);
    expect_limits(R"({"ingressRate": 1, "ingressBurst": 2, "runtimeConfig": {"bandwidth": null}})", 1, 2, 0, 0);
}

TEST(CniBandwidth, NumbersHave64Bits) {
    expect_limits(R"({"ingressRate": 18446744073709551615, "ingressBurst": 34359738360})", kMax, 34359738360U, 0, 0);
}

TEST(CniBandwidth, NoLimitIsNoValue) {
    for (const char *text : {"{}", R"({"ingressRate": 0, "ingressBurst": 0})", R"({"bandwidth": {}})",
                             R"({"runtimeConfig": {"bandwidth": {}}})"}) {
        const auto limits = read(text);
        ASSERT_TRUE(limits) << text;
        EXPECT_FALSE(*limits) << text;
    }
}

TEST(CniBandwidth, AnnotationsCountWithoutTheCapability) {
    const std::string annotated = R"("io.kubernetes.cri.pod-annotations": {"kubernetes.io/ingress-bandwidth": "10M"})";
    expect_limits(R"({"egressRate": 1, "egressBurst": 1, "runtimeConfig": {)" + annotated + "}}", 10000000, 0x7fffffff,
                  1, 1);
    expect_limits(R"({"runtimeConfig": {"bandwidth": {"egressRate": 3, "egressBurst": 4}, )" + annotated + "}}", 0, 0,
                  3, 4);
    expect_limits(R"({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}})", 0, 0, 0, 0);
}

TEST(CniBandwidth, TheSmallerRateOfEachDirectionCounts) {
    const std::string configured = R"("ingressRate": 100, "ingressBurst": 10, "egressRate": 200, "egressBurst": 20)";
    const auto with = [&](const std::string &limits, const std::string &more = "") {
        return "{" + configured + more + R"(, "runtimeConfig": {"bandwidth": {)" + limits + "}}}";
    };
    const std::string lower_and_higher =
        R"("ingressRate": 99, "ingressBurst": 50, "egressRate": 201, "egressBurst": 1)";

    expect_limits(with(lower_and_higher), 99, 9, 200, 20);
    expect_limits(with(R"("ingressRate": 100, "ingressBurst": 50)"), 100, 10, 200, 20);
    expect_limits(with(""), 100, 10, 200, 20);
    expect_limits(with(R"("ingressRate": 0, "ingressBurst": 0)"), 100, 10, 200, 20);
    expect_limits(with(lower_and_higher, R"(, "limitRule": "smaller")"), 99, 9, 200, 20);
}

TEST(CniBandwidth, ASmallerRatesBurstLastsNoLongerThanTheConfigured) {
    const auto with = [](std::uint64_t operators, std::uint64_t pods) {
        return R"({"egressRate": 9000000, "egressBurst": )" + std::to_string(operators) +
               R"(, "runtimeConfig": {"bandwidth": {"egressRate": 8000000, "egressBurst": )" + std::to_string(pods) +
               "}}}";
    };
    constexpr std::uint64_t kAuto = 0x7fffffff;
    for (const std::uint64_t longer :
         {std::uint64_t{8001}, std::uint64_t{7999999}, kAuto, std::uint64_t{1000000000000000}})
        expect_limits(with(9000, longer), 0, 0, 8000000, 8000);
    for (const std::uint64_t shorter : {std::uint64_t{1}, std::uint64_t{7999}, std::uint64_t{8000}})
        expect_limits(with(9000, shorter), 0, 0, 8000000, shorter);
    expect_limits(with(8000000, kAuto), 0, 0, 8000000, kAuto); // 100 ms, within 889
    expect_limits(with(kAuto, 7999999), 0, 0, 8000000, 7999999);
    expect_limits(with(1, kAuto), 0, 0, 8000000, 1);
    const std::string annotated = R"("runtimeConfig": {"io.kubernetes.cri.pod-annotations":
        {"kubernetes.io/ingress-bandwidth": "8M", "podlane/ingressBurst": "1P"}}})";
    expect_limits(R"({"ingressRate": 9000000, "ingressBurst": 9000, )" + annotated, 8000000, 8000, 0, 0);
    expect_limits("{" + annotated, 8000000, 1000000000000000, 0, 0);
    expect_limits(R"({"ingressRate": 18446744073709551615, "ingressBurst": 2147483646, )" + annotated, 8000000, 1, 0,
                  0);
}

TEST(CniBandwidth, AnAnnotationNeitherLiftsNorDeletesTheConfiguredLimit) {
    const auto annotated = [](const std::string &direction, const std::string &rate) {
        return R"({"ingressRate": 10000000, "ingressBurst": 10, "runtimeConfig": {"io.kubernetes.cri.pod-annotations":
                   {"kubernetes.io/)" +
               direction + R"(-bandwidth": ")" + rate + "\"}}}";
    };
    expect_limits(annotated("ingress", "1P"), 10000000, 10, 0, 0);
    expect_limits(annotated("ingress", "1M"), 1000000, 1, 0, 0);
    expect_limits(annotated("egress", "1M"), 10000000, 10, 1000000, 0x7fffffff);
}

TEST(CniBandwidth, TheStaticRuleLetsTheConfigurationCountAlone) {
    const std::string runtime = R"("runtimeConfig": {"bandwidth": {"ingressRate": 1, "ingressBurst": 1}})";
    expect_limits(R"({"limitRule": "static", "egressRate": 3, "egressBurst": 4, )" + runtime + "}", 0, 0, 3, 4);
    expect_limits(R"({"limitRule": "static", "bandwidth": {}, )" + runtime + "}", 0, 0, 0, 0);
    expect_limits(R"({"limitRule": "static", )" + runtime + "}", 1, 1, 0, 0);
    const auto wrong = read(R"({"limitRule": "largest"})");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().message, "limitRule is \"largest\", expected one of \"smaller\", \"static\"");
}

// The cases of plugins/meta/bandwidth's own tests, with their configurations.
TEST(CniBandwidth, TheReferencePluginsConfigurationsAreReadAlike) {
    expect_limits(R"({"ingressRate": 8, "ingressBurst": 8, "egressRate": 16, "egressBurst": 8})", 8, 8, 16, 8);
    expect_limits(R"({"ingressRate": 0, "ingressBurst": 0, "egressRate": 8000, "egressBurst": 80})", 0, 0, 8000, 80);
    expect_limits(R"({"egressRate": 0, "egressBurst": 0, "ingressRate": 8000, "ingressBurst": 80})", 8000, 80, 0, 0);
    const std::string runtime = R"("runtimeConfig": {"bandwidth":
        {"ingressRate": 8, "ingressBurst": 8, "egressRate": 16, "egressBurst": 9}})";
    expect_limits("{" + runtime + "}", 8, 8, 16, 9);
    const std::string unpaired = R"("ingressRate": 0, "ingressBurst": 123, "egressRate": 123, "egressBurst": 123)";
    EXPECT_FALSE(read("{" + unpaired + "}"));
    EXPECT_FALSE(read("{" + unpaired + ", " + runtime + "}")) << "the configuration is read although another counts";
    EXPECT_FALSE(read(R"({"ingressRate": 1, "ingressBurst": 0})"));
    EXPECT_FALSE(read(R"({"ingressRate": 0, "ingressBurst": 1})"));
    expect_limits(R"({"ingressRate": 0, "ingressBurst": 0})", 0, 0, 0, 0);
    expect_limits(R"({"ingressRate": 5000, "ingressBurst": 34359738352})", 5000, 34359738352U, 0, 0);
    // Refused by the reference plugin, whose burst in bytes has 32 bits; here it is longer than a second, and so 100
    // ms.
    expect_limits(R"({"ingressRate": 5000, "ingressBurst": 34359738368})", 5000, 34359738368U, 0, 0);
}

TEST(CniBandwidth, ReadsQuantities) {
    const std::vector<std::pair<const char *, std::uint64_t>> all{{"0", 0},
                                                                  {"10M", 10000000},
                                                                  {"1G", 1000000000},
                                                                  {"500k", 500000},
                                                                  {"1Ki", 1024},
                                                                  {"1Mi", 1048576},
                                                                  {"1Ei", std::uint64_t{1} << 60U},
                                                                  {"0.5M", 500000},
                                                                  {".5k", 500},
                                                                  {"5.k", 5000},
                                                                  {"+5", 5},
                                                                  {"1e6", 1000000},
                                                                  {"2E3", 2000},
                                                                  {"1e+3", 1000},
                                                                  {"1500m", 2},
                                                                  {"1e-1", 1},
                                                                  {"18E", 18000000000000000000U}};
    for (const auto &[text, expected] : all)
        EXPECT_EQ(parse_quantity(text), expected) << text;
    for (const char *text : {"19E", "999999999999999999Ei", "1234567890123456789", "", ".", "M", "1.2.3", "-1", "1K",
                             "1ki", "1MB", "1e", "1e99", "1e+-3", "1 M"})
        EXPECT_EQ(parse_quantity(text), std::nullopt) << text;
}

} // namespace
} // namespace podlane::cni
