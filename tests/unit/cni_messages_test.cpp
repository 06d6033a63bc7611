// SPDX-License-Identifier: MIT
// Every message that a configuration or an environment can cause, as tests/unit/data/messages.txt has it, so that a
// change is seen. PODLANE_WRITE_MESSAGES=1 rewrites the file. Its lines with a key, a result or a variable are the
// inputs: what is added there is tested.
#include "plugin/cni/result.hpp"
#include "tests/harness/golden.hpp"
#include "tests/unit/cni_request.hpp"

namespace podlane::cni {
namespace {

template <typename T> std::string error_text(const Result<T> &result) {
    if (result)
        return "    accepted\n";
    const Error &error = result.error();
    return "    " + std::to_string(static_cast<unsigned>(error.code)) + " " + error.message + "\n" +
           (error.hint.empty() ? "" : "    -> " + error.hint + "\n");
}

std::string answer(const Environment &environment, const std::string &text) {
    const auto request = parse_request(environment, text);
    if (!request)
        return error_text(request);
    std::string out;
    for (const std::string &sentence : request->ignored)
        out += "    ignored: " + sentence + "\n";
    for (const std::string &sentence : request->warnings)
        out += "    warning: " + sentence + "\n";
    return out.empty() ? "    accepted\n" : out;
}

constexpr const char *kFile = "tests/unit/data/messages.txt";

// Lines of the file that begin like this, and the rest of them.
std::vector<std::string> inputs(const std::string &prefix) {
    std::vector<std::string> all;
    std::istringstream lines(test::source_text(kFile));
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(prefix))
            all.push_back(line.substr(prefix.size()));
    return all;
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
    R"({"name": "pods", "ipam": {}})",
    R"({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "podlane"}]})",
    R"({"cniVersion": "2.0.0", "name": "pods"})",
    R"({"cniVersion": 1, "name": "pods"})",
    R"({"name": ")" + std::string(200, 'a') + "\"}",
    R"({"a/b": )" + std::string(40, '[') + std::string(40, ']') + "}",
};

std::string all_messages() {
    std::string out;
    for (const std::string &keys : inputs("\"")) // beside a complete configuration
        out += "\"" + keys + "\n" + answer(complete_environment(), config_with("\"" + keys));
    for (const std::string &text : kTexts)
        out += "standard input: " + text.substr(0, 60) + "\n" + answer(complete_environment(), text);
    for (const std::string &result : inputs("result: ")) // of another plugin
        out += "result: " + result + "\n" + error_text(parse_attachment(result));
    for (const std::string &variable : inputs("CNI_")) { // "-" is none
        Environment changed = complete_environment();
        const std::string name = "CNI_" + variable.substr(0, variable.find('='));
        changed.erase(name);
        if (const std::string value = variable.substr(variable.find('=') + 1); value != "-")
            changed[name] = value;
        out += "CNI_" + variable + "\n" + answer(changed, config_with(""));
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

// An error names the value that failed and the one that was expected.
TEST(CniMessages, EachNamesTheKeyOrVariable) {
    EXPECT_GT(inputs("\"").size(), 130U);
    for (const std::string &more : inputs("\"")) {
        const auto request = parse(config_with("\"" + more));
        if (request)
            continue;
        const std::string key = more.substr(0, more.find('"'));
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
