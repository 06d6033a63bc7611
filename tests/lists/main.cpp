// SPDX-License-Identifier: MIT
// Prints a list of the code as a Markdown table: "lists reasons", "lists commands". tests/check/lists compares the
// docs.
#include "maps/tables.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <cstdio>
#include <string>
#include <string_view>

namespace podlane {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
}

std::string reasons() {
    std::string text = "| reason | kind | meaning |\n|---|---|---|\n";
    for (std::size_t i = REASON_NONE + 1; i < kReasons.size(); ++i)
        text += "| `" + ctl::reason_name(i) + "` | " + std::string(ctl::reason_kind_name(i)) + " | " +
                escaped(ctl::reason_sentence(i)) + " |\n";
    return text;
}

std::string commands() {
    std::string text = "| command | what it does |\n|---|---|\n";
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands)
            text += "| `" + escaped(ctl::synopsis(noun, command)) + "`" + (command.writes ? " !" : "") + " | " +
                    escaped(command.summary) + " |\n";
    return text;
}

} // namespace
} // namespace podlane

int main(int argc, char **argv) {
    const std::string_view which = argc == 2 ? argv[1] : "";
    const std::string text = which == "reasons"    ? podlane::reasons()
                             : which == "commands" ? podlane::commands()
                                                   : std::string();
    std::fputs(text.c_str(), stdout);
    return text.empty() ? 2 : 0;
}
