// SPDX-License-Identifier: MIT
// What CRI-O sends its main plugin. Not the whole daemon was recorded: of CRI-O 1.36.3 (ocicni 0.5.0, libcni 1.3.0) and
// 1.28.11 (ocicni 0.4.1-0.20230504062519-ad62f4ea0c11, libcni 1.1.2) server/sandbox_network.go, internal/config/cnimgr
// and internal/hostport ran with these libraries and Podlane. The sandboxes, and when the server calls, were written.
#include "tests/conformance/recorded.hpp"

namespace podlane::test {
namespace {

constexpr const char *kNewer = "crio-1.36.jsonl"; // list of CNI 1.1.0
constexpr const char *kOlder = "crio-1.28.jsonl"; // list of CNI 1.0.0

class CrioTest : public RecordedTest, public testing::WithParamInterface<std::string> {
  protected:
    [[nodiscard]] static bool is(const Json &recording, const std::string &command, const std::string &pod) {
        const Json &env = recording["env"];
        const bool is_of_pod =
            env["CNI_ARGS"].get<std::string>().find(";K8S_POD_NAME=" + pod + ";") != std::string::npos;
        return env["CNI_COMMAND"] == command && (pod.empty() || is_of_pod);
    }
    [[nodiscard]] const Json &first(const std::string &command, const std::string &pod = {}) const {
        const auto found = std::ranges::find_if(all_, [&](const Json &one) { return is(one, command, pod); });
        if (found == all_.end())
            throw std::runtime_error("not recorded: " + command + " " + pod);
        return *found;
    }
    // Their ADD and the CHECK that asks for their addresses.
    void start(const std::vector<std::string> &pods) {
        for (const std::string &pod : pods)
            for (const char *command : {"ADD", "CHECK"})
                EXPECT_THAT(repeat(first(command, pod)), succeeds()) << pod;
    }
    [[nodiscard]] Json shown(const std::string &pod) const { return ctl_json("endpoint show shop/" + pod).at(0); }

    std::vector<Json> all_;
};

// Pods start, fail to start, stop with and without namespace and cache, are forgotten by a restarted server.
TEST_P(CrioTest, EveryRequestIsAnsweredAsRecorded) {
    all_ = recordings(GetParam());
    for (const Json &recording : all_) {
        for (const char *pod : {"inwards", "lost"})
            if (is(recording, "DEL", pod))
                containers_.at(recording["env"]["CNI_CONTAINERID"])->remove_namespace();
        const Reply reply = repeat(recording);
        EXPECT_EQ(reply.rc, recording["rc"]) << recording["env"] << reply;
    }
    EXPECT_EQ(size_of(&open_endpoints), results_.size());
    EXPECT_EQ(node_.leased().size(), 2 * results_.size());
    const bool has_gc = GetParam() == kNewer;
    EXPECT_EQ(results_.empty(), has_gc) << "what the server forgot is removed by GC only";
}

INSTANTIATE_TEST_SUITE_P(Recorded, CrioTest, testing::Values(kNewer, kOlder),
                         [](const auto &info) { return info.param == kNewer ? "Newer" : "Older"; });

TEST_F(CrioTest, PodsAreKnownByNameAnnotationsAndLimits) {
    all_ = recordings(kNewer);
    start({"plain", "limited", "inwards"});
    const Json plain = shown("plain");
    EXPECT_THAT(plain, has_members({{"pod_namespace", "shop"}, {"pod_name", "plain"}, {"labels", Json::object()}}));
    EXPECT_FALSE(plain["pod_uid"].get<std::string>().empty());
    EXPECT_EQ(plain["annotations"]["team"], "blue");
    EXPECT_FALSE(plain["annotations"].contains("kubectl.kubernetes.io/last-applied-configuration"));
    EXPECT_EQ(shown("limited")["ingress_limit"]["rate_bits_per_s"], 10'000'000);
    EXPECT_EQ(shown("limited")["egress_limit"]["rate_bits_per_s"], 20'000'000);
    EXPECT_EQ(shown("inwards")["ingress_limit"]["rate_bits_per_s"], 10'000'000);
    EXPECT_TRUE(shown("inwards")["egress_limit"].is_null()) << "recorded with a rate and burst of 0";
    const auto [from, to] = std::pair(first("ADD", "plain"), first("ADD", "limited"));
    const auto container = containers_.at(to["env"]["CNI_CONTAINERID"]);
    const Pod pod = look_at(container, results_.at(container->id()));
    EXPECT_TRUE(ping(containers_.at(from["env"]["CNI_CONTAINERID"])->ns(), pod.text4()));
}

// CRI-O before 1.22 sent one bit more than the reference plugin accepts.
TEST_F(CrioTest, ABurstOf4GiBIsServed) {
    all_ = recordings(kNewer);
    Json add = first("ADD", "inwards");
    Json &burst = add["stdin"]["runtimeConfig"]["bandwidth"]["ingressBurst"];
    burst = burst.get<std::uint64_t>() + 1;
    EXPECT_EQ(burst, 4294967295ULL * 8);
    EXPECT_THAT(repeat(add), succeeds());
    EXPECT_EQ(shown("inwards")["ingress_limit"]["rate_bits_per_s"], 10'000'000);
}

// It sends no list if it has no pods, and for networks that are not its default: with multus, for that of all pods.
TEST_F(CrioTest, GcWithoutAListRemovesNothing) {
    all_ = recordings(kNewer);
    start({"plain", "limited"});
    const Json &gc = first("GC");
    EXPECT_TRUE(gc["stdin"].at("cni.dev/valid-attachments").is_null());
    EXPECT_THAT(repeat(gc), fails_with(7, {"cni.dev/valid-attachments"}));
    EXPECT_EQ(size_of(&open_endpoints), 2U);
    for (const char *pod : {"plain", "limited"})
        EXPECT_THAT(repeat(first("CHECK", pod)), succeeds());
}

} // namespace
} // namespace podlane::test
