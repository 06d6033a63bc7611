// SPDX-License-Identifier: MIT
// The commands of podlanectl that read, as its own table has them, with the words they need.
#pragma once

#include "tests/netns/ctl.hpp"

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::test {

// Required arguments of a command, besides WHICH.
inline std::string needed_words(const ctl::Noun &noun, const ctl::Command &command) {
    if (noun.name == "explain")
        return " --from web-0 --to 198.51.100.9";
    if (noun.name == "bandwidth" && command.verb == "set")
        return " web-0 --egress 10M";
    if (noun.name == "bandwidth" && command.verb == "clear")
        return " web-0";
    if (noun.name == "map" && command.verb == "get")
        return " interfaces web-0";
    if (command.verb == "set-group")
        return " tenant-a --egress 10M";
    if (command.argument.name == "GROUP")
        return " tenant-a --pod web-0";
    if (command.argument.name == "MAP")
        return " addresses";
    return "";
}

inline std::string spelled(const ctl::Noun &noun, const ctl::Command &command) {
    return std::string(noun.name) + (command.verb.empty() ? "" : " " + std::string(command.verb));
}

// The arguments with which it answers about the pod web-0.
inline std::string asked_of_web(const ctl::Noun &noun, const ctl::Command &command) {
    const bool which = command.argument.name == "WHICH" && noun.name != "explain";
    return spelled(noun, command) + (which ? " web-0" : "") + needed_words(noun, command);
}

// Calls for each command that reads.
inline void each_reading(const std::function<void(const ctl::Noun &, const ctl::Command &)> &visit) {
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands)
            if (!command.writes && command.options.has(ctl::Opt::bpffs))
                visit(noun, command);
}

} // namespace podlane::test
