// SPDX-License-Identifier: MIT
// The list of keys: its defaults are those of the configuration, and every row is of use.
#include "plugin/cni/config.hpp"
#include "plugin/cni/key.hpp"
#include "plugin/cni/keys.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

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
        EXPECT_TRUE(complete || key.place == Key::Place::unread) << key.name;
    }
}

TEST(CniKeys, ObjectsHaveTheirOwnKeys) {
    EXPECT_EQ(keys_of(Key::Place::log), (std::vector<std::string_view>{"file", "level"}));
    EXPECT_EQ(keys_of(Key::Place::limits),
              (std::vector<std::string_view>{"ingressRate", "ingressBurst", "egressRate", "egressBurst",
                                             "unshapedSubnets", "shapedSubnets"}));
}

} // namespace
} // namespace podlane::cni
