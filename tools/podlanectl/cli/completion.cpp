// SPDX-License-Identifier: MIT
// Completion scripts of the shells, made from the table of commands.
#include "maps/text.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/cli/nouns.hpp"

namespace podlane::ctl {
namespace {

std::vector<std::string> verbs_of(const Noun &noun) {
    std::vector<std::string> verbs;
    for (const Command &command : noun.commands)
        if (!command.verb.empty())
            verbs.emplace_back(command.verb);
    return verbs;
}

std::vector<std::string> noun_names() {
    std::vector<std::string> names;
    for (const Noun &noun : nouns())
        names.emplace_back(noun.name);
    return names;
}

std::vector<std::string> options_of(Opts shown) {
    std::vector<std::string> names;
    for (const Option &option : options())
        if (shown.has(option.id))
            names.push_back("--" + std::string(option.name));
    return names;
}

// In single quotes of a shell.
std::string shell_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// fish knows \' within single quotes.
std::string fish_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    return out + "'";
}

// "NOUN VERB) WORDS ;;" for each command.
std::string bash_options() {
    std::string text;
    for (const Noun &noun : nouns())
        for (const Command &command : noun.commands) {
            const std::string name = std::string(noun.name) + " " + std::string(command.verb);
            text += "    " + shell_quoted(name) + ") echo " + shell_quoted(join(options_of(command.options), " ")) +
                    " ;;\n";
        }
    return text;
}

std::string bash_verbs() {
    std::string text;
    for (const Noun &noun : nouns())
        if (const auto verbs = verbs_of(noun); !verbs.empty())
            text += "    " + std::string(noun.name) + ") echo " + shell_quoted(join(verbs, " ")) + " ;;\n";
    return text;
}

// The candidates depend on the first two words that are not options.
std::string bash() {
    return "# bash completion of podlanectl\n"
           "_podlanectl_verbs() {\n    case $1 in\n" +
           bash_verbs() + "    esac\n}\n_podlanectl_options() {\n    case \"$1 $2\" in\n" + bash_options() +
           "    *) echo '--json --bpffs --help' ;;\n    esac\n}\n"
           "_podlanectl() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} noun= verb= i\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n"
           "        -*) ;;\n"
           "        *) if [[ -z $noun ]]; then noun=${COMP_WORDS[i]}; elif [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; "
           "fi ;;\n"
           "        esac\n"
           "    done\n"
           "    local words\n"
           "    if [[ $current == -* ]]; then words=$(_podlanectl_options \"$noun\" \"$verb\")\n"
           "    elif [[ -z $noun ]]; then words=" +
           shell_quoted(join(noun_names(), " ")) +
           "\n    elif [[ -z $verb ]]; then words=$(_podlanectl_verbs \"$noun\")\n"
           "    fi\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
           "}\n"
           "complete -o default -F _podlanectl podlanectl\n";
}

std::string zsh_describe(std::string_view what, const std::vector<std::pair<std::string, std::string>> &all) {
    std::string text = "        local -a " + std::string(what) + "=(";
    for (const auto &[name, summary] : all)
        text += "\n            " + shell_quoted(name + ":" + summary);
    return text + ")\n        _describe " + std::string(what) + " " + std::string(what) + "\n";
}

std::string zsh_options(Opts shown) {
    std::string text;
    for (const Option &option : options())
        if (shown.has(option.id)) {
            std::string help;
            for (const char c : option.help)
                help += c == '[' || c == ']' || c == ':' ? std::string{'\\', c} : std::string(1, c);
            text += " " + shell_quoted("--" + std::string(option.name) + "[" + help + "]" +
                                       (option.value.empty() ? "" : ":" + std::string(option.value)));
        }
    return text;
}

std::string zsh() {
    std::vector<std::pair<std::string, std::string>> objects;
    std::string verbs;
    std::string arguments;
    for (const Noun &noun : nouns()) {
        objects.emplace_back(noun.name, noun.summary);
        std::vector<std::pair<std::string, std::string>> all;
        for (const Command &command : noun.commands) {
            if (!command.verb.empty())
                all.emplace_back(command.verb, command.summary);
            arguments += "    " + shell_quoted(std::string(noun.name) + " " + std::string(command.verb)) +
                         ") _arguments" + zsh_options(command.options) + " '*: :_default' ;;\n";
        }
        if (!all.empty())
            verbs += "    " + std::string(noun.name) + ")\n" + zsh_describe("verbs", all) + "        ;;\n";
    }
    return "#compdef podlanectl\n"
           "_podlanectl() {\n"
           "    local noun=${words[2]} verb=${words[3]}\n"
           "    if ((CURRENT == 2)); then\n" +
           zsh_describe("objects", objects) +
           "        return\n    fi\n    if ((CURRENT == 3)) && [[ $PREFIX != -* ]]; then\n    case $noun in\n" + verbs +
           "    esac\n    return\n    fi\n    case \"$noun $verb\" in\n" + arguments +
           "    esac\n}\n"
           "if [[ $funcstack[1] == _podlanectl ]]; then _podlanectl \"$@\"; else compdef _podlanectl podlanectl; fi\n";
}

std::string fish() {
    std::string text = "# fish completion of podlanectl\ncomplete -c podlanectl -f\n";
    for (const Noun &noun : nouns()) {
        const std::string name(noun.name);
        text +=
            "complete -c podlanectl -n __fish_use_subcommand -a " + name + " -d " + fish_quoted(noun.summary) + "\n";
        const std::string verbs = join(verbs_of(noun), " ");
        for (const Command &command : noun.commands) {
            if (command.verb.empty())
                continue;
            text += "complete -c podlanectl -n '__fish_seen_subcommand_from " + name +
                    "; and not __fish_seen_subcommand_from " + verbs + "' -a " + std::string(command.verb) + " -d " +
                    fish_quoted(command.summary) + "\n";
        }
    }
    for (const Option &option : options()) {
        text += "complete -c podlanectl -l " + std::string(option.name);
        if (option.letter != '\0')
            text += std::string(" -s ") + option.letter;
        text += std::string(option.value.empty() ? "" : " -x") + " -d " + fish_quoted(option.help) + "\n";
    }
    return text;
}

Result<int> completion_bash(const Call & /*call*/, World &world) {
    world.print(bash());
    return 0;
}

Result<int> completion_zsh(const Call & /*call*/, World &world) {
    world.print(zsh());
    return 0;
}

Result<int> completion_fish(const Call & /*call*/, World &world) {
    world.print(fish());
    return 0;
}

constexpr std::array<Command, 3> kCompletionCommands = {{
    {"bash", "Print a script for bash: source <(podlanectl completion bash)", kHelp, {}, "", completion_bash},
    {"zsh", "Print a script for zsh: source <(podlanectl completion zsh)", kHelp, {}, "", completion_zsh},
    {"fish", "Print a script for fish: podlanectl completion fish | source", kHelp, {}, "", completion_fish},
}};

} // namespace

const Noun kCompletionNoun = {"completion", "command-line completion for your shell", kCompletionCommands};

} // namespace podlane::ctl
