// SPDX-License-Identifier: MIT
// The network configuration: each key's values, the codes of what is refused, and that the key is named.
#include "maps/abi/names.h"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/request.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace podlane::cni {
namespace {

Result<Request> parse(const std::string &text, const std::string &command = "ADD") {
    return parse_request({{"CNI_COMMAND", command},
                          {"CNI_CONTAINERID", "0a1b2c"},
                          {"CNI_IFNAME", "eth0"},
                          {"CNI_NETNS", "/run/netns/a"},
                          {"CNI_PATH", "/opt/cni/bin"}},
                         text);
}

// A complete configuration with some more keys, ", \"mtu\": 1500", of which the first may replace one.
std::string config_with(const std::string &more, const std::string &version = "1.1.0") {
    std::string text = "{\"cniVersion\": \"" + version + "\"";
    for (const std::string one : {R"("name": "pods")", R"("type": "podlane")", R"("ipam": {"type": "host-local"})"})
        if (!more.starts_with(one.substr(0, one.find(':'))))
            text += ", " + one;
    return text + (more.empty() ? "" : ", ") + more + "}";
}

Config accepted(const std::string &more, const std::string &command = "ADD") {
    auto request = parse(config_with(more), command);
    EXPECT_TRUE(request) << more << ": " << (request ? "" : request.error().message);
    return request ? request->config : Config{};
}

std::string why(const Result<Request> &request) { return request ? "accepted" : request.error().message; }

void expect_refused(const Result<Request> &request, ErrorCode code, const std::string &named) {
    ASSERT_FALSE(request) << named;
    EXPECT_EQ(request.error().code, code) << request.error().message;
    EXPECT_NE(request.error().message.find(named), std::string::npos)
        << request.error().message << " without " << named;
}

TEST(CniConfig, WrongValuesAreCode7AndNamed) {
    struct Case {
        std::string more, named;
    };
    const std::vector<Case> cases{
        {R"("mtu": -1)", "mtu is -1"},
        {R"("mtu": 1500.5)", "mtu is 1500.5"},
        {R"("mtu": 67)", "mtu is 67"},
        {R"("mtu": 65536)", "mtu is 65536"},
        {R"("mtu": "1500")", "mtu is \"1500\""},
        {R"("mtu": 18446744073709551616)", "mtu is "},
        {R"("routes": {})", "routes is an object"},
        {R"("routes": [{"dst": "192.0.2.1"}])", "routes[0].dst is \"192.0.2.1\""},
        {R"("routes": [{"gw": "192.0.2.1"}])", "routes[0].dst is missing"},
        {R"("routes": [{"dst": "::/0", "gw": "192.0.2.1"}])", "routes[0].gw"},
        {R"("routes": [{"dst": "::/0", "table": -1}])", "routes[0].table is -1"},
        {R"("defaultRoute": "no")", "defaultRoute is \"no\""},
        {R"("hostInterfacePrefix": "")", "hostInterfacePrefix is \"\""},
        {R"("hostInterfacePrefix": "calix")", "hostInterfacePrefix is \"calix\""},
        {R"("hostInterfacePrefix": "1cal")", "hostInterfacePrefix"},
        {R"("hostInterfacePrefix": "Cali")", "hostInterfacePrefix"},
        {R"("hostInterfacePrefix": "a/b")", "hostInterfacePrefix"},
        {R"("fastPath": "fast")", R"(fastPath is "fast", expected one of "on", "local", "off")"},
        {R"("fastPath": 1)", "fastPath is 1"},
        {R"("attach": "xdp")", R"(attach is "xdp", expected one of "auto", "tcx", "clsact")"},
        {R"("antiSpoof": "true")", "antiSpoof is \"true\", expected true or false"},
        {R"("allowedSources": "192.0.2.0/24")", "allowedSources is \"192.0.2.0/24\", expected a list"},
        {R"("allowedSources": ["192.0.2.0/24", "x"])", "allowedSources[1] is \"x\""},
        {R"("allowedSources": [null])", "allowedSources[0] is missing"},
        {R"("allowedEtherTypes": "lldp")", "allowedEtherTypes is \"lldp\", expected a list"},
        {R"("allowedEtherTypes": ["ipv4"])", "allowedEtherTypes[0] is \"ipv4\", expected one of \"llc\""},
        {R"("bpffs": "relative")", "bpffs is \"relative\""},
        {R"("bpffs": "/sys/../etc")", "bpffs is \"/sys/../etc\""},
        {R"("bpffs": "/a/..")", "bpffs"},
        {R"("bpffs": "//")", "bpffs"},
        {R"("bpffs": "/a\u0000b")", "bpffs"},
        {R"("ipamTimeout": 0)", "ipamTimeout is 0, expected a whole number of seconds from 1 to 3600"},
        {R"("ipamTimeout": 3601)", "ipamTimeout is 3601"},
        {R"("maxEndpoints": 0)", "maxEndpoints is 0"},
        {R"("maxPaths": 4294967296)", "maxPaths is 4294967296"},
        {R"("log": "/a")", "log is \"/a\", expected an object"},
        {R"("log": {"file": "a"})", "log.file is \"a\""},
        {R"("log": {"level": "loud"})", "log.level is \"loud\""},
        {R"("log": {"levle": "info"})", "unknown key \"levle\" in log"},
        {R"("ipam": "host-local")", "ipam is \"host-local\""},
        {R"("ipam": {"type": "../sh"})", "ipam.type is \"../sh\""},
        {R"("ipam": {"type": ".."})", "ipam.type"},
        {R"("dns": {"nameservers": "192.0.2.53"})", "dns.nameservers is"},
        {R"("capabilities": [])", "capabilities is a list"},
        {R"("args": 1)", "args is 1"},
        {R"("args": {"cni": {"ips": ["x"]}})", "args.cni.ips[0] is \"x\""},
        {R"("runtimeConfig": {"ips": ["192.0.2.1/99"]})", "runtimeConfig.ips[0] is \"192.0.2.1/99\""},
        {R"("runtimeConfig": {"mac": "01:00:5e:00:00:01"})", "runtimeConfig.mac is"},
        {R"("runtimeConfig": {"mac": 5})", "runtimeConfig.mac is 5"},
        {R"("name": "a b")", "name is \"a b\""},
        {R"("name": "")", "name is \"\""},
        {R"("name": null)", "name is missing"},
        {R"("type": 7)", "type is 7"},
        {R"("ipMasq": "yes")", "ipMasq is \"yes\""},
        {R"("prevResult": [])", "prevResult is a list"},
        {R"("prevResult": {"ips": [{"address": "x"}]})", "prevResult.ips[0].address is \"x\""},
        {R"("prevResult": {"interfaces": [{}], "ips": [{"address": "192.0.2.1/24", "interface": 1}]})",
         "prevResult.ips[0].interface is 1"}};
    for (const Case &c : cases)
        expect_refused(parse(config_with(c.more)), ErrorCode::invalid_network_config, c.named);
}

TEST(CniConfig, EveryKey) {
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

TEST(CniConfig, Defaults) {
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

TEST(CniConfig, TheWayOutOfTheNode) {
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

TEST(CniConfig, WayOfTheNetwork) {
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

TEST(CniConfig, WrongValuesOfUplinksAndRoutesAreNamed) {
    const std::vector<std::pair<std::string, std::vector<std::string>>> wrong{
        {"uplink", {R"("a b")", R"("")", R"("lo")", R"(["eth0"])"}},
        {"gateway", {R"("192.0.2.1/24")", R"(["192.0.2.1", "192.0.2.2"])", "7"}},
        {"table", {"255", "0"}},
        {"sourceRouting", {R"("no")"}},
        {"mark", {"0", "3", "8192", "16384", "32768", "65536", "2147483648", "4294967296", "-1", "\"1\""}},
        {"uplinks", {R"("eth0")", R"(["lo"])", R"([""])", R"(["a b"])", R"(["a/b"])", "[1]"}},
        {"clusterCIDRs", {R"(["198.18.0.0/33"])"}}};
    for (const auto &[key, values] : wrong)
        for (const std::string &value : values)
            expect_refused(parse(config_with("\"" + key + "\": " + value)), ErrorCode::invalid_network_config, key);
}

TEST(CniConfig, WhatLimitsConcern) {
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
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(parse(config_with(more)));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
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

TEST(CniConfig, Versions) {
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

TEST(CniConfig, CommandsNewerThanTheVersion) {
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

TEST(CniConfig, AddNeedsAnAddress) {
    expect_refused(parse(R"({"name": "pods", "ipam": {}})"), ErrorCode::invalid_network_config, "neither ipam nor");
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

TEST(CniConfig, VersionToWriteErrorsIn) {
    EXPECT_EQ(version_of(R"({"cniVersion": "0.3.1"})"), (Version{0, 3, 1}));
    EXPECT_EQ(version_of(R"({"cniVersion" : "0.3.1", "name": )"), (Version{0, 3, 1}));
    EXPECT_EQ(version_of(R"({"name": "a"})"), (Version{0, 1, 0}));
    for (const char *text :
         {"", "x", R"({"cniVersion": "7.0.0"})", R"({"cniVersion": 1})", R"({"cniVersion": ")", R"({"cniVersion")"})
        EXPECT_FALSE(version_of(text)) << text;
}

} // namespace
} // namespace podlane::cni
