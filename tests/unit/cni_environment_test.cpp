// SPDX-License-Identifier: MIT
// CNI_* variables: what each command needs, and that every bad value is code 4 and named.
#include "plugin/cni/environment.hpp"
#include "tests/unit/cni_request.hpp"

namespace podlane::cni {
namespace {

using Change = std::pair<std::string, std::optional<std::string>>; // no value: not set

constexpr const char *kConfig = R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane",
    "ipam": {"type": "host-local"}, "prevResult": {}, "cni.dev/valid-attachments": []})";

Environment environment_of(const std::string &command, const std::vector<Change> &changes = {}) {
    Environment environment = complete_environment(command);
    environment["CNI_ARGS"] = "";
    for (const auto &[name, value] : changes)
        if (value)
            environment[name] = *value;
        else
            environment.erase(name);
    return environment;
}

// Of code 4, and the message and the hint name the variable.
void expect_refused(const Result<Request> &request, const std::string &variable, const std::string &value) {
    SCOPED_TRACE(variable + "=" + value);
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().code, ErrorCode::invalid_environment);
    EXPECT_NE(request.error().message.find(variable), std::string::npos) << request.error().message;
    EXPECT_NE(request.error().hint.find(variable), std::string::npos) << request.error().hint;
}

TEST(CniEnvironment, RequiresVariablesByCommand) {
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
            if (c.required)
                expect_refused(request, c.variable, "");
            else
                EXPECT_TRUE(request) << c.command << " without " << c.variable << ": " << why(request);
        }
}

TEST(CniEnvironment, AllMissingVariablesAreNamedAtOnce) {
    const auto request = parse_request({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", "/x"}}, kConfig);
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().message,
              "required environment variables missing: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME");
}

// Refused values that a text can show are in cni_messages_test.cpp.
TEST(CniEnvironment, ChecksTheValuesOfVariables) {
    struct Case {
        std::string variable;
        std::vector<std::string> accepted, refused;
    };
    const std::vector<Case> cases{
        {"CNI_CONTAINERID", {"a", "0_.-", std::string(127, 'a')}, {"a\n", "\xc3\xa4"}},
        {"CNI_IFNAME", {"exactly15chars_", "...", "\xc3\xa4"}, {"eth\t0", "eth\xc2\xa0", "eth\xe3\x80\x80"}},
        {"CNI_NETNS", {"/proc/1/ns/net"}, {std::string("/a\0b", 4)}},
        {"CNI_PATH", {"/a:/b", ":/a::"}, {}},
        {"CNI_ARGS",
         {"A=b;IgnoreUnknown=TRUE", "A=b;IgnoreUnknown=1", "K8S_POD_NAME=", "IP=192.0.2.1",
          "IP=192.0.2.1/24, 2001:db8::1/64", "MAC=02:00:00:00:00:01"},
         {}}};
    const auto parse = [](const std::string &variable, const std::string &value) {
        return parse_request(environment_of("ADD", {{variable, value}}), kConfig);
    };
    for (const auto &[variable, accepted, refused] : cases) {
        for (const std::string &value : accepted)
            EXPECT_TRUE(parse(variable, value)) << variable << "=" << value << ": " << why(parse(variable, value));
        for (const std::string &value : refused)
            expect_refused(parse(variable, value), variable, value);
    }
}

// IPAM plugins are asked to ignore them, too.
TEST(CniEnvironment, AcceptsArgumentsOfRuntimesThatDoNotSetIgnoreUnknown) {
    const auto args = [](const std::string &text) {
        const auto request = parse_request(environment_of("ADD", {{"CNI_ARGS", text}}), kConfig);
        return request ? request->args : why(request);
    };
    EXPECT_EQ(args("NOMAD_JOB_ID=web"), "NOMAD_JOB_ID=web;IgnoreUnknown=1");
    EXPECT_EQ(args("NERDCTL_CNI_DHCP_HOSTNAME=a;IgnoreUnknown=true"), "NERDCTL_CNI_DHCP_HOSTNAME=a;IgnoreUnknown=true");
    EXPECT_EQ(args("K8S_POD_NAME=a"), "K8S_POD_NAME=a");
}

// Other characters cannot be shown: in a log, on a terminal, as a metric.
TEST(CniEnvironment, NamesOfAPodAreOneLineOfText) {
    const auto arguments = parse_arguments("K8S_POD_NAME=a\nb;K8S_POD_NAMESPACE=\033[2J;K8S_POD_UID=\xff");
    ASSERT_TRUE(arguments) << arguments.error().message;
    EXPECT_EQ(arguments->pod.name, "a?b");
    EXPECT_EQ(arguments->pod.ns, "?[2J");
    EXPECT_EQ(arguments->pod.uid, "?");
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

// DEL goes on with them, as ADD has done: an IPAM plugin may need them to find the lease.
TEST(CniEnvironment, ARepeatedArgumentIsRefusedByAddAndElseNoted) {
    const std::string twice = "K8S_POD_NAME=a;IP=192.0.2.70;IgnoreUnknown=1;IP=192.0.2.80";
    expect_refused(parse_request(environment_of("ADD", {{"CNI_ARGS", twice}}), kConfig), "CNI_ARGS", twice);
    const auto deleted = parse_request(environment_of("DEL", {{"CNI_ARGS", twice}}), kConfig);
    ASSERT_TRUE(deleted) << why(deleted);
    EXPECT_EQ(deleted->ignored, std::vector<std::string>{"CNI_ARGS has \"IP\" twice"});
    EXPECT_EQ(deleted->args, twice);
    EXPECT_EQ(deleted->pod.name, "a");
    const auto recorded = parse_recorded(environment_of("ADD", {{"CNI_ARGS", twice}}), kConfig);
    EXPECT_TRUE(recorded) << "an ADD of an earlier version accepted it: " << why(recorded);
}

TEST(CniEnvironment, NetnsOverrideIsOneOrTrue) {
    for (const auto &[value, expected] : std::vector<std::pair<std::string, bool>>{
             {"1", true}, {"true", true}, {"TRUE", true}, {"0", false}, {"yes", false}, {"", false}}) {
        const auto request = parse_request(environment_of("DEL", {{"CNI_NETNS_OVERRIDE", value}}), kConfig);
        ASSERT_TRUE(request) << why(request);
        EXPECT_EQ(request->netns_override, expected) << value;
    }
}

TEST(CniEnvironment, VersionNeedsNoValidVariables) {
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
