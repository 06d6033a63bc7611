// SPDX-License-Identifier: MIT
// Requests recorded from real runtimes (tests/unit/data/cni-requests): all parse, and all results are printed alike.
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "tests/harness/test.hpp"
#include "tests/harness/environment.hpp"

#include <nlohmann/json.hpp>

namespace podlane::cni {
namespace {

using nlohmann::json;

std::vector<json> recordings() {
    std::vector<json> all;
    for (const auto &file : std::filesystem::directory_iterator(test::source_path("tests/unit/data/cni-requests"))) {
        std::ifstream stream(file.path());
        for (std::string line; std::getline(stream, line);)
            all.push_back(json::parse(line));
    }
    return all;
}

Environment environment_of(const json &recording) {
    Environment environment = recording["env"].get<Environment>();
    environment["CNI_PATH"] = "/opt/cni/bin"; // recorded as a placeholder
    return environment;
}

// The request as it would have come to podlane in the place of the plugin it was recorded from.
json as_ours(json config) {
    config["type"] = "podlane";
    config.erase("sysctl"); // of tuning, which makes no interface
    return config;
}

TEST(CniRecordings, EveryRequestParses) {
    const auto all = recordings();
    ASSERT_GE(all.size(), 50U);
    for (const json &recording : all) {
        const json config = as_ours(recording["stdin"]);
        const auto request = parse_request(environment_of(recording), config.dump());
        if (config.contains("cni.dev/valid-attachments") && config["cni.dev/valid-attachments"].is_null()) {
            EXPECT_FALSE(request) << recording; // conformance/crio_test says why
            continue;
        }
        ASSERT_TRUE(request) << request.error().message << "\n" << recording;
        EXPECT_EQ(request->config.cni_version, parse_version(config["cniVersion"].get<std::string>()));
        EXPECT_EQ(request->config.prev_result.has_value(), config.contains("prevResult"));
        const bool limited = config.contains("runtimeConfig") && config["runtimeConfig"].contains("bandwidth");
        EXPECT_EQ(request->config.bandwidth.has_value(), limited) << recording;
        const bool named = recording["env"]["CNI_ARGS"].get<std::string>().find("K8S_POD_NAME=") != std::string::npos;
        EXPECT_EQ(!request->pod.name.empty(), named && request->command != Command::version) << recording;
    }
}

TEST(CniRecordings, EveryResultIsPrintedAlike) {
    unsigned results = 0;
    for (const json &recording : recordings()) {
        const json &printed = recording["stdout"];
        if (!printed.is_object() || (!printed.contains("ips") && !printed.contains("ip4")))
            continue;
        const auto attachment = parse_attachment(printed.dump());
        ASSERT_TRUE(attachment) << attachment.error().message << "\n" << recording;
        const auto version = parse_version(printed["cniVersion"].get<std::string>());
        ASSERT_TRUE(version);
        EXPECT_EQ(json::parse(to_json(*attachment, *version)), printed);
        ++results;
    }
    EXPECT_GE(results, 20U);
}

} // namespace
} // namespace podlane::cni
