// SPDX-License-Identifier: MIT
// Every message that a configuration or an environment can cause, as tests/unit/data/messages.txt has it, so that a
// change is seen. PODLANE_WRITE_MESSAGES=1 rewrites the file. Its lines that begin with a key are inputs, too: what is
// added there is tested beside a complete configuration.
#include "tests/harness/golden.hpp"
#include "tests/unit/cni_request.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace podlane::cni {
namespace {

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

constexpr const char *kFile = "tests/unit/data/messages.txt";

// Keys beside a complete configuration.
std::vector<std::string> keys_of_the_file() {
    std::vector<std::string> keys;
    std::istringstream lines(test::source_text(kFile));
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with('"'))
            keys.push_back(line);
    return keys;
}

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
    for (const std::string &more : keys_of_the_file())
        out += more + "\n" + answer(complete_environment(), config_with(more));
    for (const std::string &text : kTexts)
        out += "standard input: " + text.substr(0, 60) + "\n" + answer(complete_environment(), text);
    for (const auto &[name, value] : kVariables) {
        Environment changed = complete_environment();
        changed.erase(name);
        if (value != "-")
            changed[name] = value;
        out += name + "=" + value + "\n" + answer(changed, config_with(""));
    }
    for (const std::string command : {"CHECK", "GC"})
        out += command + "\n" + answer(complete_environment(command), config_with(""));
    for (const std::string command : {"CHECK", "GC", "STATUS"})
        out += command + " of 0.3.1\n" +
               answer(complete_environment(command), R"({"cniVersion": "0.3.1", "name": "pods"})");
    out += "DEL of something wrong\n" + answer(complete_environment("DEL"), config_with(R"("mtu": -1, "fastpath": 1)"));
    return out + "DEL of nothing\n" + answer(complete_environment("DEL"), "");
}

TEST(CniMessages, AreThoseOfTheFile) { test::expect_as_in(kFile, all_messages()); }

// What failed has a name, and what was expected is said.
TEST(CniMessages, EachNamesTheKeyOrVariable) {
    EXPECT_GT(keys_of_the_file().size(), 130U);
    for (const std::string &more : keys_of_the_file()) {
        const auto request = parse_request(complete_environment(), config_with(more));
        if (request)
            continue;
        const std::string key = more.substr(1, more.find('"', 1) - 1);
        EXPECT_NE((request.error().message + request.error().hint).find(key), std::string::npos)
            << more << ": " << request.error().message;
    }
}

TEST(CniMessages, AJsonErrorHasItsLineAndColumn) {
    const auto why = [](const std::string &text) {
        const auto request = parse_request(complete_environment(), text);
        return request ? "accepted" : request.error().message.substr(request.error().message.find("line"));
    };
    EXPECT_EQ(why("{\n  \"name\": \"a\",\n  \"mtu\" 1\n}"), "line 3, column 9: \"1\"");
    EXPECT_EQ(why("{\"a\": nul}"), "line 1, column 10: \"}\"");
    EXPECT_EQ(why("{\n\"a\": 1,\n"), "line 3, column 1: it ends too early");
}

} // namespace
} // namespace podlane::cni
