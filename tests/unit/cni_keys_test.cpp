// SPDX-License-Identifier: MIT
// The list of keys: its defaults are those of the configuration, and every row is of use.
#include "plugin/cni/config.hpp"
#include "plugin/cni/key.hpp"
#include "plugin/cni/keys.hpp"
#include "tests/unit/cni_request.hpp"

namespace podlane::cni {
namespace {

TEST(CniKeys, DefaultsOfTheListAreThoseOfTheConfiguration) {
    int compared = 0;
    for (const Key &key : keys()) {
        const json::Value fallback = json::Value::parse(key.fallback, nullptr, false);
        if (fallback.is_discarded() || key.read == nullptr)
            continue;
        const json::Value document = json::Value::object();
        const json::Node root(&document, {});
        Config config;
        const auto read = key.read(root, json::Node(&fallback, std::string(key.name)), config);
        EXPECT_TRUE(read) << (read ? "" : read.error().message);
        EXPECT_TRUE(config == Config{}) << key.name << " is not " << key.fallback << " by default";
        ++compared;
    }
    EXPECT_GE(compared, 18);
}

TEST(CniKeys, AnotherValueThanTheDefaultChangesTheConfiguration) {
    const json::Value document = json::Value::object();
    for (const Key &key : keys())
        if (key.name == "hostInterfacePrefix") {
            Config config;
            const json::Value value = "x";
            ASSERT_TRUE(key.read(json::Node(&document, {}), json::Node(&value, "hostInterfacePrefix"), config));
            EXPECT_FALSE(config == Config{});
        }
}

TEST(CniKeys, EachNameStandsOnceWithWhatItMeans) {
    std::set<std::string_view> names;
    for (const Key &key : keys()) {
        EXPECT_TRUE(names.insert(key.name).second) << key.name;
        EXPECT_NE(key.meaning, "") << key.name;
        const bool complete = !key.values.empty() && !key.fallback.empty();
        EXPECT_TRUE(complete || key.place == Key::Place::unread || key.place == Key::Place::foreign) << key.name;
    }
}

TEST(CniKeys, ObjectsHaveTheirOwnKeys) {
    EXPECT_EQ(keys_of(Key::Place::log), (std::vector<std::string_view>{"file", "level"}));
    EXPECT_EQ(keys_of(Key::Place::limits),
              (std::vector<std::string_view>{"ingressRate", "ingressBurst", "egressRate", "egressBurst",
                                             "unshapedSubnets", "shapedSubnets"}));
}

// A configuration written for the bridge plugin.
TEST(CniKeys, OfOtherMainPluginsAreWarnedOf) {
    const std::string bridge = R"("bridge": "cni0", "isGateway": true, "hairpinMode": true, "forceAddress": true,
                                  "promiscMode": true, "vlan": 7, "isDefaultGateway": true)";
    for (const std::string command : {"ADD", "DEL"}) {
        const auto request = parse(config_with(bridge), command);
        ASSERT_TRUE(request) << request.error().message;
        EXPECT_EQ(request->config.default_route, true);
        EXPECT_TRUE(request->ignored.empty()) << request->ignored.front();
        ASSERT_EQ(request->warnings.size(), 6U) << "each but isDefaultGateway, which has an effect";
        EXPECT_EQ(request->warnings.front(),
                  "\"bridge\" is a key of other plugins and has no effect: Podlane makes no bridge");
    }
}

TEST(CniKeys, DefaultRouteHasTwoSpellings) {
    const auto read = [](const std::string &keys) { return parse(config_with(keys)).value().config.default_route; };
    EXPECT_EQ(read(R"("isDefaultGateway": false)"), std::nullopt);
    EXPECT_EQ(read(R"("isDefaultGateway": true)"), true);
    EXPECT_EQ(read(R"("isDefaultGateway": true, "defaultRoute": false)"), false);
    EXPECT_EQ(read(R"("defaultRoute": true)"), true);
    const auto wrong = parse(config_with(R"("isDefaultGateway": 1)"));
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().message, "isDefaultGateway is 1, expected true or false");
}

} // namespace
} // namespace podlane::cni
