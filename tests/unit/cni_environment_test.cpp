// SPDX-License-Identifier: MIT
// CNI_* variables: what each command needs, and that every bad value is code 4 and named.
#include "plugin/cni/environment.hpp"
#include "plugin/cni/request.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace podlane::cni {
namespace {

using Change = std::pair<std::string, std::optional<std::string>>; // no value: not set

constexpr const char *kConfig = R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane",
    "ipam": {"type": "host-local"}, "prevResult": {}, "cni.dev/valid-attachments": []})";

Environment environment_of(const std::string &command, const std::vector<Change> &changes = {}) {
    Environment environment{{"CNI_COMMAND", command},      {"CNI_CONTAINERID", "0a1b2c"}, {"CNI_IFNAME", "eth0"},
                            {"CNI_NETNS", "/run/netns/a"}, {"CNI_PATH", "/opt/cni/bin"},  {"CNI_ARGS", ""}};
    for (const auto &[name, value] : changes)
        if (value)
            environment[name] = *value;
        else
            environment.erase(name);
    return environment;
}

std::string why(const Result<Request> &request) { return request ? "accepted" : request.error().message; }

TEST(CniEnvironment, RequiredVariables) {
    struct Case {
        std::string command, variable;
        bool required;
    };
    const std::vector<Case> cases{{"ADD", "CNI_CONTAINERID", true},   {"ADD", "CNI_NETNS", true},
                                  {"ADD", "CNI_IFNAME", true},        {"ADD", "CNI_PATH", true},
                                  {"ADD", "CNI_ARGS", false},         {"DEL", "CNI_CONTAINERID", true},
                                  {"DEL", "CNI_NETNS", false},        {"DEL", "CNI_IFNAME", true},
                                  {"CHECK", "CNI_CONTAINERID", true}, {"CHECK", "CNI_NETNS", true},
                                  {"CHECK", "CNI_IFNAME", true},      {"GC", "CNI_CONTAINERID", false},
                                  {"GC", "CNI_NETNS", false},         {"GC", "CNI_IFNAME", false},
                                  {"GC", "CNI_PATH", true},           {"STATUS", "CNI_CONTAINERID", false},
                                  {"STATUS", "CNI_PATH", true},       {"STATUS", "CNI_IFNAME", false},
                                  {"VERSION", "CNI_PATH", false},     {"VERSION", "CNI_IFNAME", false}};
    for (const Case &c : cases)
        for (const std::optional<std::string> &absent :
             {std::optional<std::string>{}, std::optional<std::string>{""}}) {
            const auto request = parse_request(environment_of(c.command, {{c.variable, absent}}), kConfig);
            ASSERT_EQ(request.has_value(), !c.required)
                << c.command << " without " << c.variable << ": " << why(request);
            if (request)
                continue;
            EXPECT_EQ(request.error().code, ErrorCode::invalid_environment);
            EXPECT_NE(request.error().message.find(c.variable), std::string::npos) << request.error().message;
            EXPECT_NE(request.error().hint.find(c.variable), std::string::npos) << request.error().hint;
        }
}

TEST(CniEnvironment, AllMissingVariablesAreNamedAtOnce) {
    const auto request = parse_request({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", "/x"}}, kConfig);
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().message,
              "required environment variables missing: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME");
}

TEST(CniEnvironment, Values) {
    struct Case {
        std::string variable, value;
        bool accepted;
    };
    const std::vector<Case> cases{{"CNI_COMMAND", "add", false},
                                  {"CNI_COMMAND", "UPDATE", false},
                                  {"CNI_CONTAINERID", "a", true},
                                  {"CNI_CONTAINERID", "0_.-", true},
                                  {"CNI_CONTAINERID", std::string(127, 'a'), true},
                                  {"CNI_CONTAINERID", std::string(128, 'a'), false},
                                  {"CNI_CONTAINERID", "-a", false},
                                  {"CNI_CONTAINERID", "a/b", false},
                                  {"CNI_CONTAINERID", "a b", false},
                                  {"CNI_CONTAINERID", "a\n", false},
                                  {"CNI_CONTAINERID", "\xc3\xa4", false},
                                  {"CNI_IFNAME", "exactly15chars_", true},
                                  {"CNI_IFNAME", "sixteen_chars_16", false},
                                  {"CNI_IFNAME", ".", false},
                                  {"CNI_IFNAME", "..", false},
                                  {"CNI_IFNAME", "...", true},
                                  {"CNI_IFNAME", "a/b", false},
                                  {"CNI_IFNAME", "eth0:1", false},
                                  {"CNI_IFNAME", "eth 0", false},
                                  {"CNI_IFNAME", "eth\t0", false},
                                  {"CNI_IFNAME", "eth\xc2\xa0", false},
                                  {"CNI_IFNAME", "eth\xe3\x80\x80", false},
                                  {"CNI_IFNAME", "eth%d", false},
                                  {"CNI_IFNAME", "\xc3\xa4", true},
                                  {"CNI_NETNS", "/proc/1/ns/net", true},
                                  {"CNI_NETNS", "dummy", false},
                                  {"CNI_NETNS", std::string("/a\0b", 4), false},
                                  {"CNI_PATH", "/a:/b", true},
                                  {"CNI_PATH", ":/a::", true},
                                  {"CNI_PATH", "::", false},
                                  {"CNI_PATH", "/a:bin", false},
                                  {"CNI_ARGS", "A", false},
                                  {"CNI_ARGS", "IgnoreUnknown=1;A=b=c", false},
                                  {"CNI_ARGS", "IgnoreUnknown=1;", false},
                                  {"CNI_ARGS", "IgnoreUnknown=1;;A=b", false},
                                  {"CNI_ARGS", "A=b", false},
                                  {"CNI_ARGS", "IgnoreUnknown=0;A=b", false},
                                  {"CNI_ARGS", "IgnoreUnknown=false;A=b", false},
                                  {"CNI_ARGS", "IgnoreUnknown=yes", false},
                                  {"CNI_ARGS", "A=b;IgnoreUnknown=TRUE", true},
                                  {"CNI_ARGS", "A=b;IgnoreUnknown=1", true},
                                  {"CNI_ARGS", "k8s_pod_name=a", false},
                                  {"CNI_ARGS", "K8S_POD_NAME=", true},
                                  {"CNI_ARGS", "IP=192.0.2.1", true},
                                  {"CNI_ARGS", "IP=192.0.2.1/24, 2001:db8::1/64", true},
                                  {"CNI_ARGS", "IP=192.0.2.256", false},
                                  {"CNI_ARGS", "IP=192.0.2.1/33", false},
                                  {"CNI_ARGS", "MAC=02:00:00:00:00:01", true},
                                  {"CNI_ARGS", "MAC=03:00:00:00:00:01", false},
                                  {"CNI_ARGS", "MAC=00:00:00:00:00:00", false},
                                  {"CNI_ARGS", "MAC=02", false}};
    for (const Case &c : cases) {
        const auto request = parse_request(environment_of("ADD", {{c.variable, c.value}}), kConfig);
        ASSERT_EQ(request.has_value(), c.accepted) << c.variable << "=" << c.value << ": " << why(request);
        if (request)
            continue;
        EXPECT_EQ(request.error().code, ErrorCode::invalid_environment) << c.variable << "=" << c.value;
        EXPECT_NE(request.error().message.find(c.variable), std::string::npos) << request.error().message;
        EXPECT_NE(request.error().hint.find(c.variable), std::string::npos) << request.error().hint;
    }
}

TEST(CniEnvironment, UnknownArgumentIsNamed) {
    const auto arguments = parse_arguments("K8S_POD_NAME=a;COLOUR=red");
    ASSERT_FALSE(arguments);
    EXPECT_NE(arguments.error().message.find("COLOUR=red"), std::string::npos) << arguments.error().message;
}

TEST(CniEnvironment, ArgumentsReachTheRequest) {
    const auto request =
        parse_request(environment_of("ADD", {{"CNI_ARGS", "K8S_POD_UID=u;K8S_POD_NAMESPACE=n;IgnoreUnknown=true;X=y;"
                                                          "K8S_POD_INFRA_CONTAINER_ID=i;K8S_POD_NAME=p;"
                                                          "IP=192.0.2.7/24,2001:db8::7;MAC=02:00:00:00:00:0A"},
                                             {"CNI_PATH", "/a::/b"},
                                             {"CNI_NETNS_OVERRIDE", "True"}}),
                      kConfig);
    ASSERT_TRUE(request) << why(request);
    EXPECT_EQ(request->pod.name, "p");
    EXPECT_EQ(request->pod.ns, "n");
    EXPECT_EQ(request->pod.uid, "u");
    EXPECT_EQ(request->pod.infra_container_id, "i");
    ASSERT_EQ(request->config.requested_ips.size(), 2U);
    EXPECT_EQ(to_string(request->config.requested_ips[0]), "192.0.2.7/24");
    EXPECT_EQ(to_string(request->config.requested_ips[1]), "2001:db8::7/128");
    ASSERT_TRUE(request->config.requested_mac);
    EXPECT_EQ(to_string(*request->config.requested_mac), "02:00:00:00:00:0a");
    EXPECT_EQ(request->path, (std::vector<std::string>{"/a", "/b"}));
    EXPECT_TRUE(request->netns_override);
    EXPECT_EQ(request->container_id, "0a1b2c");
    EXPECT_EQ(request->ifname, "eth0");
    EXPECT_EQ(request->netns, "/run/netns/a");
    EXPECT_EQ(request->raw_config, kConfig);
}

TEST(CniEnvironment, NetnsOverrideIsOneOrTrue) {
    for (const auto &[value, expected] : std::vector<std::pair<std::string, bool>>{
             {"1", true}, {"true", true}, {"TRUE", true}, {"0", false}, {"yes", false}, {"", false}}) {
        const auto request = parse_request(environment_of("DEL", {{"CNI_NETNS_OVERRIDE", value}}), kConfig);
        ASSERT_TRUE(request) << why(request);
        EXPECT_EQ(request->netns_override, expected) << value;
    }
}

TEST(CniEnvironment, VersionAsksNothing) {
    const Environment odd{{"CNI_COMMAND", "VERSION"}, {"CNI_NETNS", "dummy"}, {"CNI_IFNAME", "a/b"}, {"CNI_ARGS", "x"}};
    struct Case {
        const char *text;
        Version expected;
    };
    for (const Case &c : std::vector<Case>{{"", {1, 1, 0}},
                                           {R"({"cniVersion": "0.4.0"})", {0, 4, 0}},
                                           {R"({"cniVersion": "9.9.9"})", {1, 1, 0}},
                                           {"garbage", {1, 1, 0}}}) {
        const auto request = parse_request(odd, c.text);
        ASSERT_TRUE(request) << why(request);
        EXPECT_EQ(request->command, Command::version);
        EXPECT_EQ(request->config.cni_version, c.expected) << c.text;
    }
}

} // namespace
} // namespace podlane::cni
