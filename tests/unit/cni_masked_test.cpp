// SPDX-License-Identifier: MIT
// The log shows a document without its secrets.
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

TEST(Masked, ValuesOfUsualKeysAreNotShown) {
    for (const char *key : {"pwd", "DB_PASS", "dbPassword", "PGPASSWORD", "api-key", "Cookie", "private"})
        EXPECT_EQ(masked("{\"" + std::string(key) + "\": \"hunter2\"}"), "{\"" + std::string(key) + "\":\"(masked)\"}");
    EXPECT_EQ(masked(R"({"env": [{"name": "DB_PASS", "value": "hunter2"}, {"name": "MODE", "value": "a"}]})"),
              R"x({"env":[{"name":"DB_PASS","value":"(masked)"},{"name":"MODE","value":"a"}]})x");
}

TEST(Masked, SecretsInTextsAreNotShown) {
    const std::vector<std::pair<std::string, std::string>> texts = {
        {"PASSWORD=hunter2", "PASSWORD=(masked)"},
        {"MODE=a DB_PASS=hunter2;PORT=1", "MODE=a DB_PASS=(masked);PORT=1"},
        {"pwd: hunter2, port: 1", "pwd: (masked), port: 1"},
        {"password = 'two words' x", "password = '(masked)' x"},
        {R"x({"token": "hunter2", "a": 1})x", R"x({"a":1,"token":"(masked)"})x"},
        {R"x(with {"token": "hunter2", "a": 1})x", R"x(with {"token": "(masked)", "a": 1})x"},
        {R"x({"password": "a\"hunter2" and so on)x", R"x({"password": "(masked)" and so on)x"},
        {"password:\thunter2", "password:\t(masked)"},
        {"password\t= hunter2", "password\t= (masked)"},
        {"user: a\npassword: |\n  hunter2\n", "user: a\npassword: (masked)"},
        {"password:\n  hunter2", "password:(masked)"},
        {"tokens: [hunter2, hunter3]", "tokens: (masked)"},
        {"--password hunter2 --port 1", "--password (masked) --port 1"},
        {"--token=hunter2", "--token=(masked)"},
        {"Authorization: Bearer hunter2 x", "Authorization: (masked) x"},
        {"Bearer hunter2", "Bearer (masked)"},
        {"-----BEGIN PRIVATE KEY-----\nhunter2", "(masked)"},
        {"password=", "password="},
        {"password", "password"},
        {"the key is below", "the key is below"},
        {"a=1,b=2 c: d", "a=1,b=2 c: d"},
        {"2001:db8::1", "2001:db8::1"},
        {"", ""}};
    for (const auto &[text, shown] : texts)
        EXPECT_EQ(masked_text(text), shown);
    EXPECT_EQ(masked(R"({"env": ["PASSWORD=hunter2", "A=b"], "args": ["--db-password", "hunter2", "-v"]})"),
              R"x({"args":["--db-password","(masked)","-v"],"env":["PASSWORD=(masked)","A=b"]})x");
}

// As runtimes and multus hand annotations on: configurations of other plugins within texts.
TEST(Masked, SecretsInDocumentsWithinTextsAreNotShown) {
    const auto in_text = [](const std::string &document) {
        std::string escaped;
        for (const char c : document)
            escaped += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
        return "{\"a\":\"" + escaped + "\"}";
    };
    for (const auto &[document, shown] : std::vector<std::pair<std::string, std::string>>{
             {R"({"password": {"value": "hunter2"}, "b": 1})", R"x({"b":1,"password":"(masked)"})x"},
             {R"([{"name": "x", "cni-args": {"tokens": ["hunter2", "hunter3"]}}])",
              R"x([{"cni-args":{"tokens":"(masked)"},"name":"x"}])x"},
             {in_text(R"({"secret": ["hunter2"]})"), in_text(R"x({"secret":"(masked)"})x")}})
        EXPECT_EQ(masked(in_text(document)), in_text(shown));
}

TEST(Masked, UrlsLoseTheUser) {
    EXPECT_EQ(masked(R"({"url": ["https://u:p@h:2379/v2,http://p@ss@h", "https://h/a@b", "u@h", "s://"]})"),
              R"x({"url":["https://(masked)@h:2379/v2,http://(masked)@h","https://h/a@b","u@h","s://"]})x");
}

TEST(Masked, WhatIsNoObjectIsCounted) {
    EXPECT_EQ(masked("token"), "5 bytes that are no JSON object");
    EXPECT_EQ(masked(""), "0 bytes that are no JSON object");
}

TEST(Masked, SecretsInPairsOfArgumentsAreNotShown) {
    EXPECT_EQ(masked_pairs("IgnoreUnknown=1;API_KEY=a=b;URL=http://u:p@h"),
              "IgnoreUnknown=1;API_KEY=(masked);URL=http://(masked)@h");
    EXPECT_EQ(masked_pairs("A;B;"), "A;B");
    EXPECT_EQ(masked_pairs(""), "");
}

} // namespace
} // namespace podlane::cni
