// SPDX-License-Identifier: MIT
// Results, errors and the texts of delegated plugins, in every version's form.
#include "plugin/cni/error.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "tests/harness/test.hpp"

#include <nlohmann/json.hpp>

namespace podlane::cni {
namespace {

using nlohmann::json;

constexpr const char *kFull = R"({"cniVersion": "1.1.0",
    "interfaces": [{"name": "cali1", "mac": "02:00:00:00:00:01", "mtu": 1400},
                   {"name": "eth0", "sandbox": "/run/netns/a", "socketPath": "/s", "pciID": "p"}],
    "ips": [{"interface": 1, "address": "192.0.2.7/24", "gateway": "192.0.2.1"}, {"address": "192.0.2.8/32"},
            {"interface": 1, "address": "2001:db8::7/64"}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1", "mtu": 1300, "advmss": 1200, "priority": 5, "table": 0, "scope": 0},
               {"dst": "::/0"}],
    "dns": {"nameservers": ["192.0.2.53"], "domain": "example.org", "search": ["a"], "options": ["b"]}})";

Attachment attachment_of(const std::string &text) {
    auto attachment = parse_attachment(text);
    EXPECT_TRUE(attachment) << (attachment ? "" : attachment.error().message);
    return attachment ? *attachment : Attachment{};
}

json reprinted(const std::string &text, Version version) { return json::parse(to_json(attachment_of(text), version)); }

TEST(CniResult, NewestVersionHoldsEverything) { EXPECT_EQ(reprinted(kFull, {1, 1, 0}), json::parse(kFull)); }

TEST(CniResult, Version1_0HasNeitherMtuNorRouteDetails) {
    json expected = json::parse(kFull);
    expected["cniVersion"] = "1.0.0";
    expected["interfaces"][0].erase("mtu");
    expected["interfaces"][1].erase("socketPath");
    expected["interfaces"][1].erase("pciID");
    expected["routes"][0] = {{"dst", "0.0.0.0/0"}, {"gw", "192.0.2.1"}};
    EXPECT_EQ(reprinted(kFull, {1, 0, 0}), expected);
}

TEST(CniResult, Version0_3NamesTheFamilies) {
    for (const Version version : {Version{0, 3, 0}, Version{0, 3, 1}, Version{0, 4, 0}}) {
        const json result = reprinted(kFull, version);
        EXPECT_EQ(result["cniVersion"], to_string(version));
        EXPECT_EQ(result["ips"][0]["version"], "4");
        EXPECT_EQ(result["ips"][2]["version"], "6");
        EXPECT_EQ(result["ips"][0]["interface"], 1);
    }
}

TEST(CniResult, Version0_2HoldsOneAddressAFamily) {
    const json expected = json::parse(R"({"cniVersion": "0.2.0",
        "ip4": {"ip": "192.0.2.7/24", "gateway": "192.0.2.1", "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]},
        "ip6": {"ip": "2001:db8::7/64", "routes": [{"dst": "::/0"}]},
        "dns": {"nameservers": ["192.0.2.53"], "domain": "example.org", "search": ["a"], "options": ["b"]}})");
    EXPECT_EQ(reprinted(kFull, {0, 2, 0}), expected);
    EXPECT_EQ(reprinted(expected.dump(), {0, 2, 0}), expected);
}

TEST(CniResult, OldFormsAreRead) {
    const Attachment attachment = attachment_of(
        R"({"ip4": {"ip": "192.0.2.7/24", "routes": [{"dst": "0.0.0.0/0"}]}, "ip6": {"ip": "2001:db8::7/64"}})");
    ASSERT_EQ(attachment.addresses.size(), 2U);
    EXPECT_EQ(to_string(attachment.addresses[1].prefix), "2001:db8::7/64");
    EXPECT_EQ(attachment.routes.size(), 1U);
}

TEST(CniResult, KeysInAnyCaseAndNullsAreReadAsGoDoes) {
    const Attachment attachment =
        attachment_of(R"({"IPs": [{"Address": "192.0.2.7/24", "Gateway": "", "interface": null}],
        "interfaces": null, "routes": null, "dns": null})");
    ASSERT_EQ(attachment.addresses.size(), 1U);
    EXPECT_FALSE(attachment.addresses[0].gateway);
}

TEST(CniResult, OrderOfKeysIsFixed) {
    EXPECT_EQ(to_json(attachment_of(R"({"routes": [{"gw": "192.0.2.1", "dst": "0.0.0.0/0"}],
                                        "ips": [{"gateway": "192.0.2.1", "address": "192.0.2.7/24"}]})"),
                      {0, 4, 0}),
              R"({
    "cniVersion": "0.4.0",
    "ips": [
        {
            "version": "4",
            "address": "192.0.2.7/24",
            "gateway": "192.0.2.1"
        }
    ],
    "routes": [
        {
            "dst": "0.0.0.0/0",
            "gw": "192.0.2.1"
        }
    ]
})");
}

TEST(CniResult, OfAnIpamPluginTheNumbersOfInterfacesSayNothing) {
    const auto lease = parse_lease(R"({"ips": [{"address": "192.0.2.1/24", "interface": 0}],
                                       "interfaces": [{"name": "x"}]})");
    ASSERT_TRUE(lease);
    EXPECT_FALSE(lease->addresses.at(0).interface);
    EXPECT_TRUE(lease->interfaces.empty());
    EXPECT_FALSE(attachment_of(R"({"ips": [{"address": "192.0.2.1/24", "interface": 0}]})").addresses.at(0).interface);
}

TEST(CniResult, OfAnIpamPluginIsChecked) {
    const auto refusal = [](const std::string &text) {
        const auto lease = parse_lease(text);
        EXPECT_TRUE(lease || lease.error().code == ErrorCode::decode_failure) << text;
        return lease ? "accepted" : lease.error().message;
    };
    EXPECT_EQ(refusal(R"({"ips": [{"address": "192.0.2.7/24", "gateway": "2001:db8::1"}]})"),
              "the gateway of 192.0.2.7/24 is 2001:db8::1, an address of the other family");
    EXPECT_EQ(refusal(R"({"cniVersion": "0.2.0", "ip6": {"ip": "2001:db8::7/64", "gateway": "192.0.2.1"}})"),
              "the gateway of 2001:db8::7/64 is 192.0.2.1, an address of the other family");
    EXPECT_EQ(refusal(R"({"ips": [{"address": "192.0.2.7/24", "gateway": "192.0.2.0"}]})"),
              "the gateway of 192.0.2.7/24 is 192.0.2.0, the network address of the subnet");
    for (const char *version : {"2.0.0", "1", "newest"})
        EXPECT_EQ(refusal(R"({"cniVersion": ")" + std::string(version) + R"(", "ips": []})"),
                  "cniVersion is \"" + std::string(version) +
                      "\", expected one of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0");
    for (const char *good :
         {R"({"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.7/24", "gateway": "192.0.2.1"}]})",
          R"({"cniVersion": "", "ips": [{"address": "2001:db8::7/64", "gateway": "2001:db8::"}]})", // of the routers
          R"({"ips": [{"address": "192.0.2.1/31", "gateway": "192.0.2.0"}, {"address": "192.0.2.9/32"}]})",
          R"({"ips": [{"address": "192.0.2.7/32", "gateway": "169.254.1.1"}]})"})
        EXPECT_EQ(refusal(good), "accepted") << good;
}

// Other texts that are no result are in cni_messages_test.cpp, with their messages.
TEST(CniResult, ANameWithAZeroByteIsNamed) {
    const auto attachment = parse_attachment(R"({"interfaces": [{"name": "a\u0000b"}]})");
    ASSERT_FALSE(attachment);
    EXPECT_EQ(attachment.error().code, ErrorCode::decode_failure);
    EXPECT_NE(attachment.error().message.find("interfaces[0].name"), std::string::npos) << attachment.error().message;
}

TEST(CniVersion, AnswerEchoesASupportedVersion) {
    const json answer = json::parse(version_json({0, 4, 0}));
    EXPECT_EQ(answer["cniVersion"], "0.4.0");
    EXPECT_EQ(answer["supportedVersions"], json({"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}));
    EXPECT_EQ(json::parse(version_json({9, 0, 0}))["cniVersion"], "1.1.0");
}

TEST(CniError, HoldsCodeMessageAndDetails) {
    const Error error{ErrorCode::map_full, "inserting 192.0.2.7 into addresses_v1: no space", "raise maxEndpoints",
                      E2BIG};
    EXPECT_EQ(json::parse(to_json(error, {0, 3, 1})), (json{{"cniVersion", "0.3.1"},
                                                            {"code", 102},
                                                            {"msg", "inserting 192.0.2.7 into addresses_v1: no space"},
                                                            {"details", "raise maxEndpoints; errno 7 E2BIG"}}));
    EXPECT_FALSE(json::parse(to_json({ErrorCode::bpf, "a", {}}, {1, 0, 0})).contains("details"));
}

TEST(CniError, AnyBytesCanBePrinted) {
    const json printed = json::parse(to_json({ErrorCode::internal, "\xff\x01\"", "\xc3"}, {1, 1, 0}), nullptr, false);
    ASSERT_FALSE(printed.is_discarded());
    EXPECT_EQ(printed["msg"], "\xef\xbf\xbd\x01\"");
}

TEST(CniDelegation, ConfigurationIsRewrittenForAnotherVersion) {
    const std::string raw =
        R"({"cniversion": "1.1.0", "name": "pods", "ipam": {"type": "x", "big": 18446744073709551615},
        "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.7/24"}]}})";
    const auto rewritten = with_cni_version(raw, {0, 2, 0});
    ASSERT_TRUE(rewritten) << rewritten.error().message;
    EXPECT_EQ(json::parse(*rewritten), json::parse(R"({"cniVersion": "0.2.0", "name": "pods",
        "ipam": {"type": "x", "big": 18446744073709551615},
        "prevResult": {"cniVersion": "0.2.0", "ip4": {"ip": "192.0.2.7/24"}}})"));
    const auto same = with_cni_version(raw, {1, 1, 0});
    ASSERT_TRUE(same);
    EXPECT_EQ(*same, raw);
    EXPECT_FALSE(with_cni_version("x", {1, 0, 0}));
    EXPECT_FALSE(with_cni_version(R"({"prevResult": {"ips": 1}})", {1, 0, 0}));
}

TEST(CniDelegation, ReadsAVersionReply) {
    const auto versions =
        parse_version_reply(R"({"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "x", "1.2.0"]})");
    ASSERT_TRUE(versions);
    EXPECT_EQ(*versions, (std::vector<Version>{{0, 4, 0}, {1, 2, 0}}));
    const auto old = parse_version_reply(R"({"cniVersion": "0.2.0"})");
    ASSERT_TRUE(old);
    EXPECT_EQ(*old, (std::vector<Version>{{0, 1, 0}, {0, 2, 0}}));
    for (const char *text :
         {"", "{}", R"({"cniVersion": "1.0.0", "supportedVersions": []})", R"({"supportedVersions": 1})"})
        EXPECT_FALSE(parse_version_reply(text)) << text;
}

TEST(CniDelegation, ReadsAPluginsErrors) {
    const Error full =
        parse_plugin_error(R"({"code": 11, "msg": "no addresses", "details": "range a"})", "host-local", {});
    EXPECT_EQ(full.code, ErrorCode::try_again_later);
    EXPECT_EQ(full.message, "host-local: no addresses (code 11)");
    EXPECT_EQ(full.hint, "host-local: range a");
    const Error ended{ErrorCode::ipam, "IPAM plugin /x exited with code 2: boom", "see its log"};
    const Error other = parse_plugin_error(R"({"code": 999, "msg": "a"})", "x", ended);
    EXPECT_EQ(other.code, ErrorCode::ipam);
    EXPECT_EQ(other.message, "x: a (code 999)");
    EXPECT_EQ(other.hint, ended.hint);
    for (const char *text : {"", "panic: …", "{}", R"({"code": -1, "msg": 5})"})
        EXPECT_EQ(parse_plugin_error(text, "x", ended).message, ended.message) << text;
    EXPECT_EQ(parse_plugin_error(R"({"code": 4})", "x", ended).message, ended.message + " (code 4)");
}

} // namespace
} // namespace podlane::cni
