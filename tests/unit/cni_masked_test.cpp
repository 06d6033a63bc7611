// SPDX-License-Identifier: MIT
// What the log shows of a document: no secret of it.
#include "plugin/cni/masked.hpp"
#include "tests/harness/test.hpp"

namespace podlane::cni {
namespace {

TEST(Masked, SecretsAreNamedAndNotShown) {
    EXPECT_EQ(masked(R"({"mtu": 1400, "ipam": {"type": "x", "authToken": {"a": [1]}, "privateKey": "abc"}})"),
              R"x({"ipam":{"authToken":"(masked)","privateKey":"(masked)","type":"x"},"mtu":1400})x");
    EXPECT_EQ(masked(R"({"labels": [{"key": "db/Password", "value": "abc"}, {"key": "app", "value": "web"}]})"),
              R"x({"labels":[{"key":"db/Password","value":"(masked)"},{"key":"app","value":"web"}]})x");
    EXPECT_EQ(masked(R"({"key": "abc"})"), R"x({"key":"(masked)"})x");
    EXPECT_EQ(masked(R"({"kubectl.kubernetes.io/last-applied-configuration": "{}"})"),
              R"x({"kubectl.kubernetes.io/last-applied-configuration":"(masked)"})x");
}

TEST(Masked, UrlsLoseTheUser) {
    EXPECT_EQ(masked(R"({"url": ["https://u:p@h:2379/v2,http://p@ss@h", "https://h/a@b", "u@h", "s://"]})"),
              R"x({"url":["https://(masked)@h:2379/v2,http://(masked)@h","https://h/a@b","u@h","s://"]})x");
}

TEST(Masked, WhatIsNoObjectIsCounted) {
    EXPECT_EQ(masked("token"), "5 bytes that are no JSON object");
    EXPECT_EQ(masked(""), "0 bytes that are no JSON object");
}

TEST(Masked, PairsOfArguments) {
    EXPECT_EQ(masked_pairs("IgnoreUnknown=1;API_KEY=a=b;URL=http://u:p@h"),
              "IgnoreUnknown=1;API_KEY=(masked);URL=http://(masked)@h");
    EXPECT_EQ(masked_pairs("A;B;"), "A;B");
    EXPECT_EQ(masked_pairs(""), "");
}

} // namespace
} // namespace podlane::cni
