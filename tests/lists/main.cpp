// SPDX-License-Identifier: MIT
// Prints a list of the code as Markdown: "lists reasons", "lists commands", "lists keys", "lists specification",
// "lists unread". tests/check/lists compares the docs.
#include "maps/tables.hpp"
#include "plugin/cni/key.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

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

// A JSON text as code, a number or words as they are.
std::string fallback_of(const cni::Key &key) {
    const std::string text(key.fallback);
    return text.starts_with('"') ? "`" + text + "`" : text;
}

std::string keys(const std::vector<cni::Key::Place> &places) {
    std::string text = "| key | type | default | meaning |\n|---|---|---|---|\n";
    for (const cni::Key &key : cni::keys())
        if (std::ranges::find(places, key.place) != places.end())
            text += "| `" + std::string(key.name) + "` | " + escaped(key.values) + " | " + fallback_of(key) + " | " +
                    escaped(key.meaning) + " |\n";
    return text;
}

std::string unread_keys() {
    std::string text = "Also accepted, and not read:";
    for (const cni::Key &key : cni::keys())
        if (key.place == cni::Key::Place::unread)
            text += " `" + std::string(key.name) + "`";
    return text + "; and every key with a `.` or a `/` in its name.\n";
}

std::string list(std::string_view name) {
    using enum cni::Key::Place;
    if (name == "reasons")
        return reasons();
    if (name == "commands")
        return commands();
    if (name == "keys")
        return keys({top, limits, log});
    if (name == "specification")
        return keys({specification});
    return name == "unread" ? unread_keys() : std::string();
}

} // namespace
} // namespace podlane

int main(int argc, char **argv) {
    const std::string text = podlane::list(argc == 2 ? argv[1] : "");
    std::fputs(text.c_str(), stdout);
    return text.empty() ? 2 : 0;
}
