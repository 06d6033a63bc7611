// SPDX-License-Identifier: MIT
// The network configuration: each key's values, and the codes of what is refused; cni_messages_test.cpp has each
// refused value with its message.
#include "maps/abi/names.h"
#include "plugin/cni/bandwidth.hpp"
#include "tests/unit/cni_request.hpp"

#include <ctime>

namespace podlane::cni {
namespace {

Config accepted(const std::string &more, const std::string &command = "ADD") {
    auto request = parse(config_with(more), command);
    EXPECT_TRUE(request) << more << ": " << (request ? "" : request.error().message);
    return request ? request->config : Config{};
}

void expect_refused(const Result<Request> &request, ErrorCode code, const std::string &named) {
    ASSERT_FALSE(request) << named;
    EXPECT_EQ(request.error().code, code) << request.error().message;
    EXPECT_NE(request.error().message.find(named), std::string::npos)
        << request.error().message << " without " << named;
}

TEST(CniConfig, ReadsEveryKey) {
    const Config config =
        accepted(R"("mtu": 1450, "routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.1", "table": 0}],
        "defaultRoute": false, "hostInterfacePrefix": "p-_0", "fastPath": "local", "attach": "clsact",
        "antiSpoof": false, "allowedSources": ["203.0.113.0/24", "2001:db8::1"], "bpffs": "/sys/fs/bpf/own/",
        "maxEndpoints": 5, "maxPaths": 6, "log": {"file": "/var/log/podlane.log", "level": "debug"}, "ipMasq": false,
        "dns": {"nameservers": ["192.0.2.53"], "domain": "example.org", "search": ["a"], "options": ["b"]},
        "prevResult": {"ips": [{"address": "192.0.2.7/24"}]})");
    EXPECT_EQ(config.cni_version, (Version{1, 1, 0}));
    EXPECT_EQ(config.name, "pods");
    EXPECT_EQ(config.type, "podlane");
    EXPECT_EQ(config.ipam_type, "host-local");
    EXPECT_EQ(config.mtu, 1450U);
    ASSERT_EQ(config.routes.size(), 1U);
    EXPECT_EQ(to_string(config.routes[0].destination), "198.51.100.0/24");
    EXPECT_EQ(config.routes[0].table, 0U);
    EXPECT_EQ(config.default_route, false);
    EXPECT_EQ(config.host_interface_prefix, "p-_0");
    EXPECT_EQ(config.fast_path, FastPath::local);
    EXPECT_EQ(config.attach, AttachBy::clsact);
    EXPECT_FALSE(config.anti_spoof);
    ASSERT_EQ(config.allowed_sources.size(), 2U);
    EXPECT_EQ(to_string(config.allowed_sources[1]), "2001:db8::1/128");
    EXPECT_EQ(config.bpffs, "/sys/fs/bpf/own");
    EXPECT_EQ(config.max_endpoints, 5U);
    EXPECT_EQ(config.max_paths, 6U);
    EXPECT_EQ(accepted(R"("ipamTimeout": 5)").ipam_timeout_s, 5U);
    EXPECT_EQ(config.log.file, "/var/log/podlane.log");
    EXPECT_EQ(config.log.level, Log::Level::debug);
    EXPECT_EQ(config.dns.nameservers, std::vector<std::string>{"192.0.2.53"});
    EXPECT_EQ(config.dns.domain, "example.org");
    ASSERT_TRUE(config.prev_result);
    EXPECT_EQ(to_string(config.prev_result->addresses.at(0).prefix), "192.0.2.7/24");
}

TEST(CniConfig, HasTheDocumentedDefaults) {
    const Config config = accepted(R"("mtu": 0, "runtimeConfig": null, "prevResult": null)");
    EXPECT_FALSE(config.mtu);
    EXPECT_EQ(config.host_interface_prefix, "cali");
    EXPECT_EQ(config.fast_path, FastPath::on);
    EXPECT_EQ(config.attach, AttachBy::automatic);
    EXPECT_TRUE(config.anti_spoof);
    EXPECT_FALSE(config.default_route) << "as needed";
    EXPECT_EQ(config.bpffs, PODLANE_ROOT);
    EXPECT_FALSE(config.prev_result);
    EXPECT_FALSE(config.bandwidth);
    EXPECT_EQ(accepted(R"("fastPath": true)").fast_path, FastPath::on);
    EXPECT_EQ(accepted(R"("fastPath": false)").fast_path, FastPath::off);
}

TEST(CniConfig, UnknownKeysAreNamedWithTheNearest) {
    struct Case {
        std::string key, suggested;
    };
    for (const Case &c : std::vector<Case>{{"mtuu", "\"mtu\""},
                                           {"MTU", "\"mtu\""},
                                           {"hostinterfaceprefix", "\"hostInterfacePrefix\""},
                                           {"fastpth", "\"fastPath\""},
                                           {"antispoofing", "\"antiSpoof\""},
                                           {"ingresRate", "\"ingressRate\""},
                                           {"preResult", "\"prevResult\""},
                                           {"hairpinMod", "remove"},
                                           {"x", "remove"}}) {
        const auto request = parse(config_with("\"" + c.key + "\": 1"));
        expect_refused(request, ErrorCode::invalid_network_config, "\"" + c.key + "\"");
        EXPECT_NE(request.error().hint.find(c.suggested), std::string::npos) << c.key << ": " << request.error().hint;
    }
}

TEST(CniConfig, ForeignKeysAreAccepted) {
    for (const std::string key : {"cni.dev/attachments", "io.kubernetes.cri", "a/b", "disableCheck", "disableGC",
                                  "loadOnlyInlinedPlugins", "delegates", "deviceID", "RuntimeConfig", "PREVRESULT"})
        accepted("\"" + key + "\": {}");
}

TEST(CniConfig, DhcpIsRefusedUntilDel) {
    const auto by_dhcp = [](const std::string &command) {
        return parse(R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane", "ipam": {"type": "dhcp"}})",
                     command);
    };
    for (const char *command : {"ADD", "STATUS"})
        expect_refused(by_dhcp(command), ErrorCode::unsupported_field, "\"dhcp\"");
    EXPECT_TRUE(by_dhcp("DEL"));
}

TEST(CniConfig, ReadsUplinks) {
    const auto silent = parse(config_with(""));
    ASSERT_TRUE(silent) << silent.error().message;
    EXPECT_TRUE(silent->config.uplinks.empty() && silent->config.cluster_cidrs.empty());
    EXPECT_EQ(silent->config.mark, PODLANE_MARK);
    EXPECT_FALSE(silent->config.ip_masq);

    const auto full = parse(config_with(
        R"("uplinks": ["eth0", "ens*"], "clusterCIDRs": ["198.18.0.0/15", "2001:db8::/32"], "mark": 256, "ipMasq": true)"));

    ASSERT_TRUE(full) << full.error().message;
    EXPECT_EQ(full->config.uplinks, (std::vector<std::string>{"eth0", "ens*"}));
    ASSERT_EQ(full->config.cluster_cidrs.size(), 2U);
    EXPECT_EQ(to_string(full->config.cluster_cidrs[1]), "2001:db8::/32");
    EXPECT_EQ(full->config.mark, 256U);
    EXPECT_TRUE(full->config.ip_masq);
}

TEST(CniConfig, NumbersAndMarksHaveBounds) {
    for (const char *key :
         {R"("mtu": 68)", R"("mtu": 65535)", R"("slowPathMark": "0x10/0x30")", R"("slowPathMark": "1")"})
        (void)accepted(key);
    for (const char *key : {R"("mtu": 67)", R"("mtu": 65536)", R"("slowPathMark": "0x11/0x10")",
                            R"("slowPathMark": "0/0")", R"("slowPathMark": "0x1/")"})
        expect_refused(parse(config_with(key)), ErrorCode::invalid_network_config, "");
}

TEST(CniConfig, ReadsTheEgressRoute) {
    const auto silent = parse(config_with(""));
    ASSERT_TRUE(silent);
    EXPECT_TRUE(silent->config.source_routing);
    EXPECT_TRUE(silent->config.uplink.empty() && silent->config.gateways.empty() && !silent->config.table);
    const auto full = parse(config_with(
        R"("uplink": "bond0", "gateway": ["192.0.2.1", "2001:db8::1"], "table": 100, "sourceRouting": false)"));
    ASSERT_TRUE(full);
    EXPECT_EQ(full->config.uplink, "bond0");
    EXPECT_EQ(full->config.gateways.size(), 2U);
    EXPECT_EQ(full->config.table, 100U);
    EXPECT_FALSE(full->config.source_routing);
    EXPECT_EQ(parse(config_with(R"("gateway": "192.0.2.1")"))->config.gateways.size(), 1U);
}

TEST(CniConfig, ReadsExemptAndShapedPrefixes) {
    const Config both = accepted(R"("unshapedSubnets": ["198.51.100.0/24"], "limiter": "edt")");
    EXPECT_EQ(both.limiter, Limiter::edt);
    for (const LimitedPrefixes &of : both.limited_prefixes)
        EXPECT_EQ(of.unshaped.size(), 1U);
    const Config each = accepted(R"("unshapedSubnets": {"ingress": ["198.51.100.0/24", "2001:db8::/32"]},
                                    "bandwidth": {"shapedSubnets": {"egress": ["203.0.113.0/24"]}})");
    EXPECT_EQ(each.limited_prefixes[0].unshaped.size(), 2U);
    EXPECT_TRUE(each.limited_prefixes[1].unshaped.empty());
    EXPECT_EQ(each.limited_prefixes[1].shaped.size(), 1U);
    for (const char *wrong : {R"("unshapedSubnets": ["198.51.100.0/24"], "shapedSubnets": {"egress": ["::/0"]})",
                              R"("unshapedSubnets": {"up": []})", R"("shapedSubnets": 5)", R"("limiter": "tbf")"})
        EXPECT_FALSE(parse(config_with(wrong))) << wrong;
}

TEST(CniConfig, UndecodableTextIsCode6) {
    for (const std::string &text :
         {std::string{}, std::string(" \n"), std::string("{"), std::string("[]"), std::string("1"), std::string("nul"),
          std::string("{\"name\": \"\xff\"}"), std::string(R"({"name": "a",})"),
          std::string(R"({"name": "a", "cniVersion": "1.0.0"} x)"), std::string(R"({"a": )") + std::string(40, '['),
          std::string(2U << 20U, ' ') + "{}"})
        expect_refused(parse(text), ErrorCode::decode_failure, "network configuration");
}

TEST(CniConfig, NestingIsBounded) {
    const auto nested = [](unsigned depth) {
        return config_with(R"("a/b": )" + std::string(depth, '[') + std::string(depth, ']'));
    };
    EXPECT_TRUE(parse(nested(31)));
    expect_refused(parse(nested(32)), ErrorCode::decode_failure, "nested deeper");
    expect_refused(parse(nested(400000)), ErrorCode::decode_failure, "nested deeper");
    EXPECT_TRUE(parse(config_with(R"("a/b": "\")" + std::string(99, '{') + "\"")));
}

TEST(CniConfig, ManyKeysAreReadQuickly) {
    std::string more = "\"a/\": 0";
    for (unsigned i = 0; more.size() < 1000000; ++i)
        more += ",\"/" + std::to_string(i) + "\":0";
    const std::clock_t start = std::clock(); // of the processor: the machine may be busy
    EXPECT_TRUE(parse(config_with(more)));
    EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC);
}

TEST(CniConfig, ARepeatedKeyIsRefusedAndOnlyNotedByDel) {
    const std::string twice = config_with(R"("mtu": 1400, "log": {}, "mtu": 1300)");
    expect_refused(parse(twice), ErrorCode::invalid_network_config, "key \"mtu\" appears twice");
    EXPECT_TRUE(parse(config_with(R"("mtu": 1400, "args": {"mtu": 1300})"))) << "another object";
    const auto deleted = parse(twice, "DEL");
    ASSERT_TRUE(deleted) << why(deleted);
    EXPECT_EQ(deleted->config.mtu, 1300U);
    ASSERT_EQ(deleted->ignored.size(), 1U);
}

// Go reads the outermost object's keys in any case.
TEST(CniConfig, KeysThatDifferInCaseAreRepeated) {
    expect_refused(parse(config_with(R"("Name": "other")")), ErrorCode::invalid_network_config, "appears twice");
    EXPECT_TRUE(parse(config_with(R"("args": {"labels": {"a": "1", "A": "2"}})")));
}

TEST(CniConfig, NothingBehindANulByteIsIgnored) {
    expect_refused(parse(config_with("") + std::string("\0{\"x\":", 6)), ErrorCode::decode_failure, "has a NUL byte");
}

// The last list would be the one that counts, and a pod that only the first one names be removed.
TEST(CniConfig, GcRefusesAListOfLivingPodsThatIsThereTwice) {
    const std::string list = R"("cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}])";
    EXPECT_TRUE(parse(config_with(list), "GC"));
    for (const std::string &twice :
         {list + R"(, "cni.dev/valid-attachments": [])",
          list + R"(, "mtu": 1, "MTU": 2, "CNI.dev/Valid-Attachments": [])",
          std::string(R"("cni.dev/valid-attachments": [{"containerID": "a", "containerID": "b", "ifname": "eth0"}])")})
        expect_refused(parse(config_with(twice), "GC"), ErrorCode::invalid_network_config, "appears twice");
    const auto noted = parse(config_with(list + R"(, "mtu": 1400, "mtu": 1300)"), "GC");
    ASSERT_TRUE(noted) << why(noted);
    EXPECT_EQ(noted->ignored.size(), 1U);
}

TEST(CniConfig, SuspiciousValuesAreWarnedOfAtAdd) {
    const auto warnings = [](const std::string &more, const std::string &command = "ADD") {
        const auto request = parse(config_with(more), command);
        EXPECT_TRUE(request) << why(request);
        return request ? request->warnings.size() : 0;
    };
    EXPECT_EQ(warnings(""), 0U);
    EXPECT_EQ(warnings(R"("prevResult": {})"), 1U);
    EXPECT_EQ(warnings(R"("prevResult": {})", "CHECK"), 0U);
    EXPECT_EQ(warnings(R"("ingressRate": 1, "ingressBurst": 1, "egressRate": 999, "egressBurst": 1)"), 2U);
    EXPECT_EQ(warnings(R"("ingressRate": 1000, "ingressBurst": 1)"), 0U);
}

TEST(CniConfig, AcceptsEachSupportedVersion) {
    for (const std::string version : {"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"})
        EXPECT_TRUE(parse(config_with("", version))) << version;
    for (const std::string version : {"1.2.0", "2.0.0", "0.0.0", "1.0", "1.0.0.0", "x", "01.0.0", "1.1.0 "}) {
        const auto request = parse(config_with("", version));
        expect_refused(request, ErrorCode::incompatible_cni_version, version);
        EXPECT_NE(request.error().message.find("0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), std::string::npos);
    }
    const auto silent = parse(R"({"name": "pods", "type": "podlane", "ipam": {"type": "host-local"}})");
    ASSERT_TRUE(silent) << why(silent);
    EXPECT_EQ(silent->config.cni_version, (Version{0, 1, 0}));
    expect_refused(parse(R"({"name": "pods", "cniVersion": 1})"), ErrorCode::invalid_network_config, "cniVersion is 1");
}

TEST(CniConfig, RefusesCommandsNewerThanTheVersion) {
    struct Case {
        std::string command, version;
        bool allowed;
    };
    const std::string more = R"("prevResult": {}, "cni.dev/valid-attachments": [])";
    const std::vector<Case> cases{{"CHECK", "0.3.1", false}, {"CHECK", "0.4.0", true},   {"GC", "1.0.0", false},
                                  {"GC", "1.1.0", true},     {"STATUS", "1.0.0", false}, {"STATUS", "1.1.0", true},
                                  {"DEL", "0.1.0", true}};
    for (const Case &c : cases) {
        const auto request = parse(config_with(more, c.version), c.command);
        EXPECT_EQ(request.has_value(), c.allowed) << c.command << " " << c.version << ": " << why(request);
        if (!c.allowed)
            expect_refused(request, ErrorCode::incompatible_cni_version, c.version);
    }
}

TEST(CniConfig, CheckNeedsThePreviousResult) {
    expect_refused(parse(config_with(""), "CHECK"), ErrorCode::invalid_network_config, "prevResult is missing");
}

TEST(CniConfig, APathWithAZeroByteIsRefused) {
    expect_refused(parse(config_with(R"("bpffs": "/a\u0000b")")), ErrorCode::invalid_network_config, "bpffs");
}

TEST(CniConfig, AddNeedsAnAddress) {
    expect_refused(parse(R"({"name": "pods"})"), ErrorCode::invalid_network_config, "neither ipam nor");
    expect_refused(parse(R"({"name": "pods", "ipam": {}})"), ErrorCode::invalid_network_config,
                   "\"ipam\" has no \"type\"");
    EXPECT_TRUE(parse(R"({"name": "pods", "ipam": {}, "prevResult": {}})"));
    EXPECT_TRUE(parse(R"({"name": "pods", "prevResult": {}})"));
    EXPECT_TRUE(parse(R"({"name": "pods"})", "DEL"));
}

TEST(CniConfig, GarbageCollectionNeedsItsList) {
    expect_refused(parse(config_with(""), "GC"), ErrorCode::invalid_network_config,
                   "cni.dev/valid-attachments is missing");
    expect_refused(parse(config_with(R"("cni.dev/valid-attachments": null)"), "GC"), ErrorCode::invalid_network_config,
                   "cni.dev/valid-attachments is missing");
    expect_refused(parse(config_with(R"("cni.dev/valid-attachments": [{"containerID": "a"}])"), "GC"),
                   ErrorCode::invalid_network_config, "cni.dev/valid-attachments[0].ifname is missing");
    expect_refused(parse(config_with(R"("cni.dev/valid-attachments": [{"containerID": "", "ifname": "e"}])"), "GC"),
                   ErrorCode::invalid_network_config, "cni.dev/valid-attachments[0]");
    for (const auto &[wrong, named] :
         {std::pair{"1", "is 1"}, {R"("x")", "is \"x\""}, {"null", "is missing"}, {"[]", "is a list"}})
        expect_refused(parse(config_with(R"("cni.dev/valid-attachments": [)" + std::string(wrong) + "]"), "GC"),
                       ErrorCode::invalid_network_config, std::string("cni.dev/valid-attachments[0] ") + named);
    EXPECT_TRUE(accepted(R"("cni.dev/valid-attachments": [])", "GC").valid_attachments.empty());
    const std::string older = R"("cni.dev/attachments": [{"containerID": "a", "ifname": "eth0"}])";
    const Config config = accepted(older, "GC");
    ASSERT_EQ(config.valid_attachments.size(), 1U);
    EXPECT_EQ(config.valid_attachments[0].container_id, "a");
    EXPECT_EQ(config.valid_attachments[0].ifname, "eth0");
    EXPECT_TRUE(accepted(older + R"(, "cni.dev/valid-attachments": [])", "GC").valid_attachments.empty());
}

TEST(CniConfig, RuntimeOverridesArgumentsInAnyCase) {
    const Config config = accepted(R"("args": {"cni": {"ips": ["192.0.2.1"], "mac": "02:00:00:00:00:01"}},
        "runtimeConfig": {"IPs": ["192.0.2.2/24", "2001:db8::2"], "MAC": "02:00:00:00:00:02", "portMappings": [1]})");
    ASSERT_EQ(config.requested_ips.size(), 2U);
    EXPECT_EQ(to_string(config.requested_ips[0]), "192.0.2.2/24");
    EXPECT_EQ(to_string(config.requested_mac.value()), "02:00:00:00:00:02");
    EXPECT_EQ(accepted(R"("args": {"cni": {"ips": ["192.0.2.1"]}}, "runtimeConfig": {"ips": []})").requested_ips.size(),
              1U);
}

TEST(CniConfig, FindsTheVersionToWriteErrorsIn) {
    EXPECT_EQ(version_of(R"({"cniVersion": "0.3.1"})"), (Version{0, 3, 1}));
    EXPECT_EQ(version_of(R"({"cniVersion" : "0.3.1", "name": )"), (Version{0, 3, 1}));
    EXPECT_EQ(version_of(R"({"name": "a"})"), (Version{0, 1, 0}));
    for (const char *text :
         {"", "x", R"({"cniVersion": "7.0.0"})", R"({"cniVersion": 1})", R"({"cniVersion": ")", R"({"cniVersion")"})
        EXPECT_FALSE(version_of(text)) << text;
}

} // namespace
} // namespace podlane::cni
