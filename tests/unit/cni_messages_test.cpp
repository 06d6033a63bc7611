// SPDX-License-Identifier: MIT
// Every message that a configuration or an environment can cause, as tests/unit/data/messages.txt has it, so that a
// change is seen. PODLANE_WRITE_MESSAGES=1 rewrites the file.
#include "plugin/cni/request.hpp"
#include "tests/harness/golden.hpp"

#include <string>
#include <vector>

namespace podlane::cni {
namespace {

Environment environment(const std::string &command) {
    return {{"CNI_COMMAND", command},
            {"CNI_CONTAINERID", "0a1b2c"},
            {"CNI_IFNAME", "eth0"},
            {"CNI_NETNS", "/run/netns/a"},
            {"CNI_PATH", "/opt/cni/bin"}};
}

// A complete configuration with some more keys, of which the first may replace one.
std::string complete(const std::string &more) {
    std::string text = R"({"cniVersion": "1.1.0")";
    for (const std::string one : {R"("name": "pods")", R"("type": "podlane")", R"("ipam": {"type": "host-local"})"})
        if (!more.starts_with(one.substr(0, one.find(':'))))
            text += ", " + one;
    return text + (more.empty() ? "" : ", ") + more + "}";
}

std::string answer(const Environment &environment, const std::string &text) {
    const auto request = parse_request(environment, text);
    std::string out;
    if (!request) {
        out =
            "    " + std::to_string(static_cast<unsigned>(request.error().code)) + " " + request.error().message + "\n";
        if (!request.error().hint.empty())
            out += "    -> " + request.error().hint + "\n";
        return out;
    }
    for (const std::string &sentence : request->ignored)
        out += "    ignored: " + sentence + "\n";
    for (const std::string &sentence : request->warnings)
        out += "    warning: " + sentence + "\n";
    return out.empty() ? "    accepted\n" : out;
}

// Keys beside a complete configuration.
const std::vector<std::string> kKeys{
    R"("mtu": -1)",
    R"("mtu": 67)",
    R"("mtu": "1500")",
    R"("mtuu": 1500)",
    R"("hairpinMode": true)",
    R"("isGateway": true)",
    R"("bridge": "cni0", "vlan": 7)",
    R"("isDefaultGateway": true)",
    R"("mtu": 1400, "mtu": 1300)",
    R"("routes": {"dst": "0.0.0.0/0"})",
    R"("routes": [{"dest": "192.0.2.0/24"}])",
    R"("routes": ["192.0.2.0/24"])",
    R"("routes": [{"dst": "192.0.2.0/33"}])",
    R"("routes": [{"dst": "::/0", "gw": "192.0.2.1"}])",
    R"("routes": [{"dst": "::/0", "table": -1}])",
    R"("defaultRoute": "no")",
    R"("hostInterfacePrefix": "toolong")",
    R"("fastPath": "maybe")",
    R"("firstPacket": "fast")",
    R"("slowPathMark": "1/0")",
    R"("confirmIntervalMs": 5)",
    R"("conntrackLiberal": 1)",
    R"("attach": "xdp")",
    R"("antiSpoof": "true")",
    R"("uplinks": "eth0")",
    R"("uplinks": ["a b"])",
    R"("uplinks": ["lo"])",
    R"("uplink": "lo")",
    R"("uplink": ["eth0"])",
    R"("uplink": "a b")",
    R"("gateway": "192.0.2.1/24")",
    R"("gateway": ["192.0.2.1", "192.0.2.2"])",
    R"("table": 255)",
    R"("sourceRouting": "no")",
    R"("clusterCIDRs": "198.18.0.0/15")",
    R"("clusterCIDRs": ["198.18.0.0/33"])",
    R"("clusterCIDRs": ["pods"])",
    R"("mark": 3)",
    R"("allowedSources": "192.0.2.0/24")",
    R"("allowedEtherTypes": "lldp")",
    R"("allowedEtherTypes": ["ipv4"])",
    R"("bpffs": "relative")",
    R"("stateDir": "/a/../b")",
    R"("ipamTimeout": 0)",
    R"("maxEndpoints": 0)",
    R"("maxPaths": 4294967296)",
    R"("log": "/var/log/podlane.log")",
    R"("log": {"file": "podlane.log"})",
    R"("log": {"level": "loud"})",
    R"("log": {"levle": "info"})",
    R"("bandwidth": 1)",
    R"("bandwidth": {"rate": 1})",
    R"("bandwidth": {}, "egressRate": 1, "egressBurst": 1)",
    R"("ingressRate": 1000000)",
    R"("ingressBurst": 1000000)",
    R"("ingressRate": "1M", "ingressBurst": 1)",
    R"("ingressRate": 1, "ingressBurst": 1)",
    R"("egressRate": 999, "egressBurst": 1)",
    R"("unshapedSubnets": ["::/0"], "shapedSubnets": ["::/0"])",
    R"("unshapedSubnets": {"up": []})",
    R"("shapedSubnets": 5)",
    R"("limiter": "tbf")",
    R"("limitRule": "largest")",
    R"("name": "a b")",
    R"("type": 7)",
    R"("ipam": "host-local")",
    R"("ipam": {"type": "../sh"})",
    R"("ipMasq": "yes")",
    R"("dns": {"nameservers": "192.0.2.53"})",
    R"("capabilities": [])",
    R"("args": 1)",
    R"("args": {"cni": {"ips": ["x"]}})",
    R"("runtimeConfig": {"ips": "192.0.2.1"})",
    R"("runtimeConfig": {"mac": "01:00:5e:00:00:01"})",
    R"("runtimeConfig": {"bandwidth": {"ingressRate": 1}})",
    R"("runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/egress-bandwidth": "10"}})",
    R"("prevResult": {})",
    R"("prevResult": [])",
    R"("prevResult": {"ips": [{"address": "192.0.2.1"}]})",
    R"("prevResult": {"interfaces": [{}], "ips": [{"address": "192.0.2.1/24", "interface": 1}]})",
};

// Whole inputs.
const std::vector<std::string> kTexts{
    "",
    "[]",
    "{",
    "{\n  \"name\": \"pods\",\n  \"mtu\": 1500,\n}",
    "\xef\xbb\xbf{}",
    "{}",
    R"({"name": "pods"})",
    R"({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "podlane"}]})",
    R"({"cniVersion": "2.0.0", "name": "pods"})",
    R"({"cniVersion": 1, "name": "pods"})",
    R"({"name": ")" + std::string(200, 'a') + "\"}",
    R"({"a/b": )" + std::string(40, '[') + std::string(40, ']') + "}",
};

// A variable and its value; "-" is none.
const std::vector<std::pair<std::string, std::string>> kVariables{
    {"CNI_COMMAND", "RESTART"}, {"CNI_CONTAINERID", "-"}, {"CNI_CONTAINERID", "a b"},
    {"CNI_IFNAME", "-"},        {"CNI_IFNAME", "a/b"},    {"CNI_IFNAME", "sixteen-letters-"},
    {"CNI_NETNS", "-"},         {"CNI_NETNS", "netns"},   {"CNI_PATH", "-"},
    {"CNI_PATH", "bin"},        {"CNI_ARGS", "A=1"},      {"CNI_ARGS", "IP"},
    {"CNI_ARGS", "IP=x"},       {"CNI_ARGS", "MAC=x"},    {"CNI_NETNS_OVERRIDE", "x"},
};

std::string all_messages() {
    std::string out;
    for (const std::string &more : kKeys)
        out += more + "\n" + answer(environment("ADD"), complete(more));
    for (const std::string &text : kTexts)
        out += "standard input: " + text.substr(0, 60) + "\n" + answer(environment("ADD"), text);
    for (const auto &[name, value] : kVariables) {
        Environment changed = environment("ADD");
        changed.erase(name);
        if (value != "-")
            changed[name] = value;
        out += name + "=" + value + "\n" + answer(changed, complete(""));
    }
    for (const std::string command : {"CHECK", "GC"})
        out += command + "\n" + answer(environment(command), complete(""));
    for (const std::string command : {"CHECK", "GC", "STATUS"})
        out += command + " of 0.3.1\n" + answer(environment(command), R"({"cniVersion": "0.3.1", "name": "pods"})");
    out += "DEL of something wrong\n" + answer(environment("DEL"), complete(R"("mtu": -1, "fastpath": 1)"));
    return out + "DEL of nothing\n" + answer(environment("DEL"), "");
}

TEST(CniMessages, AreThoseOfTheFile) { test::expect_as_in("tests/unit/data/messages.txt", all_messages()); }

// What failed has a name, and what was expected is said.
TEST(CniMessages, EachNamesTheKeyOrVariable) {
    for (const std::string &more : kKeys) {
        const auto request = parse_request(environment("ADD"), complete(more));
        if (request)
            continue;
        const std::string key = more.substr(1, more.find('"', 1) - 1);
        EXPECT_NE((request.error().message + request.error().hint).find(key), std::string::npos)
            << more << ": " << request.error().message;
    }
}

TEST(CniMessages, AJsonErrorHasItsLineAndColumn) {
    const auto why = [](const std::string &text) {
        const auto request = parse_request(environment("ADD"), text);
        return request ? "accepted" : request.error().message.substr(request.error().message.find("line"));
    };
    EXPECT_EQ(why("{\n  \"name\": \"a\",\n  \"mtu\" 1\n}"), "line 3, column 9: \"1\"");
    EXPECT_EQ(why("{\"a\": nul}"), "line 1, column 10: \"}\"");
    EXPECT_EQ(why("{\n\"a\": 1,\n"), "line 3, column 1: it ends too early");
}

} // namespace
} // namespace podlane::cni
