// SPDX-License-Identifier: MIT
#include "tools/podlanectl/cli/cli.hpp"

#include <algorithm>

namespace podlane::ctl {
namespace {

constexpr std::size_t kLeft = 30; // width of the column left of an explanation

std::string entry(std::string left, std::string_view right) {
    left = "  " + left;
    left.resize(std::max(left.size() + 2, kLeft), ' ');
    return left + std::string(right) + "\n";
}

std::string option_entry(const Option &option) {
    std::string left = option.letter == '\0' ? "    " : std::string{'-', option.letter, ',', ' '};
    left += "--" + std::string(option.name);
    if (!option.value.empty())
        left += " " + std::string(option.value);
    return entry(std::move(left), option.help);
}

std::string option_entries(Opts shown) {
    std::string text = "\nOptions:\n";
    for (const Option &option : options())
        if (shown.has(option.id))
            text += option_entry(option);
    return text;
}

std::string program_help() {
    std::string text = "podlanectl shows the state of this node's pods in Podlane, and what happens to their packets.\n"
                       "\nUsage: podlanectl [OPTION]... OBJECT [VERB] [ARGUMENT]\n\nObjects:\n";
    for (const Noun &noun : nouns()) {
        std::string verbs;
        for (const Command &command : noun.commands)
            if (!command.verb.empty())
                verbs += (verbs.empty() ? " " : "|") + std::string(command.verb);
        text += entry(std::string(noun.name) + verbs, noun.summary);
    }
    text += option_entries({Opt::json, Opt::bpffs, Opt::help});
    text += "\nObjects, verbs and options may be abbreviated: \"podlanectl e s web-0\" is \"podlanectl endpoint show "
            "web-0\".\n\"podlanectl OBJECT --help\" and \"podlanectl OBJECT VERB --help\" print details.\n"
            "Exit code: 0 success, 1 a problem was found or the object is missing, 2 usage error.\n";
    return text;
}

std::string noun_help(const Noun &noun) {
    const std::string name(noun.name);
    std::string text = name + ": " + std::string(noun.summary) + "\n\nUsage: podlanectl " + name + " [VERB] ...\n\n";
    text += "Verbs:\n";
    for (const Command &command : noun.commands)
        text += entry(std::string(command.verb) + (&command == &noun.commands.front() ? " (default)" : ""),
                      command.summary);
    return text + "\n\"podlanectl " + name + " VERB --help\" prints details.\n";
}

std::string command_help(const Noun &noun, const Command &command) {
    std::string text = std::string(command.summary) + "\n\nUsage: podlanectl " + synopsis(noun, command);
    text += " [OPTION]...\n";
    const std::string argument(command.argument.name);
    const std::string more(command.more.name);
    if (!argument.empty())
        text += "\n" + entry(argument, command.argument.help);
    if (!more.empty())
        text += entry(more, command.more.help);
    text += option_entries(command.options);
    if (!command.detail.empty())
        text += "\n" + std::string(command.detail) + "\n";
    return text;
}

} // namespace

std::string synopsis(const Noun &noun, const Command &command) {
    std::string text(noun.name);
    if (!command.verb.empty())
        text += " " + std::string(command.verb);
    const std::string argument(command.argument.name);
    if (!argument.empty())
        text += command.argument.required ? " " + argument : " [" + argument + "]";
    if (!command.more.name.empty())
        text += " [" + std::string(command.more.name) + "]...";
    return text;
}

std::string help_text(const Call &call) {
    if (call.noun == nullptr)
        return program_help();
    if (call.command == nullptr)
        return noun_help(*call.noun);
    return command_help(*call.noun, *call.command);
}

} // namespace podlane::ctl
