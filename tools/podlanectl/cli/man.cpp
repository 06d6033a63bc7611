// SPDX-License-Identifier: MIT
// The manual page, made from the table of commands.
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/cli/nouns.hpp"

#include <algorithm>

namespace podlane::ctl {
namespace {

// Plain text for roff: a dash is a minus, a backslash itself, and no line begins a request.
std::string roff(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
            out += "\\&";
        if (c == '-')
            out += "\\-";
        else if (c == '\\')
            out += "\\e";
        else
            out += c;
    }
    return out;
}

// Indented lines stay as they are.
std::string paragraph(std::string_view text) {
    std::string out;
    bool as_is = false;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        if (line.starts_with("  ") != as_is)
            out += as_is ? ".fi\n" : ".nf\n";
        as_is = line.starts_with("  ");
        out += roff(line) + "\n";
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out + (as_is ? ".fi\n" : "");
}

std::string tagged(const std::string &tag, std::string_view text) { return ".TP\n" + tag + "\n" + roff(text) + "\n"; }

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

std::string option_tag(const Option &option) {
    std::string tag = option.letter == '\0' ? "" : bold(std::string{'-', option.letter}) + ", ";
    tag += bold("--" + std::string(option.name));
    if (!option.value.empty())
        tag += " \\fI" + roff(option.value) + "\\fR";
    return tag;
}

std::string command_section(const Noun &noun, const Command &command) {
    std::string tag = bold(std::string(noun.name) + (command.verb.empty() ? "" : " " + std::string(command.verb)));
    const std::string argument(command.argument.name);
    if (!argument.empty())
        tag += command.argument.required ? " \\fI" + argument + "\\fR" : " [\\fI" + argument + "\\fR]";
    if (!command.more.name.empty())
        tag += " [\\fI" + std::string(command.more.name) + "\\fR]...";
    std::string text = tagged(tag, command.summary);
    if (!command.detail.empty())
        text += paragraph(command.detail);
    std::string names;
    for (const Option &option : options())
        if (command.options.has(option.id) && option.id != Opt::help && option.id != Opt::bpffs)
            names += (names.empty() ? "" : ", ") + bold("--" + std::string(option.name));
    return names.empty() ? text : text + "Options: " + names + ".\n";
}

std::string page() {
    std::string text =
        ".TH PODLANECTL 8 \"\" \"Podlane\" \"System Administration\"\n"
        ".SH NAME\npodlanectl \\- show and change the state of this node\\(aqs pods in Podlane\n"
        ".SH SYNOPSIS\n.B podlanectl\n[\\fIOPTION\\fR]... \\fIOBJECT\\fR [\\fIVERB\\fR] "
        "[\\fIARGUMENT\\fR]\n"
        ".SH DESCRIPTION\n"
        "Reads the pinned BPF maps of Podlane and queries the kernel; there is no daemon. The first verb of\n"
        "an object is the default one. Objects and verbs may be abbreviated to their beginnings; verbs\n"
        "that change something may not.\n.SH COMMANDS\n";
    for (const Noun &noun : nouns()) {
        text += ".SS " + roff(noun.name) + ": " + roff(noun.summary) + "\n";
        for (const Command &command : noun.commands)
            text += command_section(noun, command);
    }
    text += ".SH OPTIONS\n";
    for (const Option &option : options())
        text += tagged(option_tag(option), option.help);
    text += ".SH EXIT STATUS\n0 success, 1 a problem was found or the object is missing, 2 usage error.\n"
            ".SH ENVIRONMENT\n" +
            tagged(bold("PODLANE_BPFFS"), "the directory of the pins") +
            tagged(bold("NO_COLOR"), "no colour, also on a terminal") + ".SH SEE ALSO\n.BR ip (8),\n.BR bpftool (8)\n";
    return text;
}

Result<int> man(const Call & /*call*/, World &world) {
    world.print(page());
    return 0;
}

constexpr std::array<Command, 1> kManCommands = {{
    {"", "Print it: podlanectl man | man -l -", kHelp, {}, "", man},
}};

} // namespace

const Noun kManNoun = {"man", "the manual page", kManCommands};

} // namespace podlane::ctl
