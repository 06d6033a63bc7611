// SPDX-License-Identifier: MIT
#include "tools/podlanectl/cli/cli.hpp"
#include "maps/nearest.hpp"
#include "maps/text.hpp"

#include <algorithm>

namespace podlane::ctl {
namespace {

template <typename Named> std::vector<std::string_view> names_of(const Named &all) {
    std::vector<std::string_view> names;
    names.reserve(std::size(all));
    for (const auto &one : all)
        names.push_back(one.name);
    return names;
}

std::string did_you_mean(std::string_view word, std::string_view prefix, std::span<const std::string_view> candidates,
                         std::string_view kind) {
    if (const std::string_view near = nearest(word, candidates); !near.empty())
        return "did you mean \"" + std::string(prefix) + std::string(near) + "\"?";
    return std::string(kind) + ": " + join(candidates, ", ");
}

// Null if none begins like this.
Result<const Option *> find_option(std::string_view name) {
    std::vector<const Option *> found;
    for (const Option &option : options()) {
        if (option.name == name)
            return &option;
        if (option.name.starts_with(name))
            found.push_back(&option);
    }
    if (found.size() == 1)
        return found.front();
    if (found.empty())
        return nullptr;
    std::string candidates;
    for (const Option *option : found)
        candidates += " --" + std::string(option->name);
    return usage_error("option --" + std::string(name) + " is ambiguous", "it could be one of" + candidates);
}

Result<const Option *> find_letter(char letter) {
    for (const Option &option : options())
        if (option.letter == letter)
            return &option;
    return usage_error("unknown option -" + std::string(1, letter), "see podlanectl --help");
}

// Splits the words into options, stored in `call`, and the rest, in order. `unknown` is the first option that no
// command has: it may have a value, which is in the rest then.
Result<std::vector<std::string_view>> take_options(std::span<const std::string_view> words, Call &call,
                                                   std::optional<std::string_view> &unknown) {
    std::vector<std::string_view> rest;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        if (word == "--") {
            rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
            break;
        }
        if (word.size() < 2 || word[0] != '-') {
            rest.push_back(word);
            continue;
        }
        const bool is_long = word[1] == '-';
        const std::size_t equals = is_long ? word.find('=') : std::string_view::npos;
        if (!is_long && word.size() > 2)
            return usage_error("unknown option " + std::string(word), "write each one-letter option by itself");
        const std::string_view name = word.substr(2, equals == std::string_view::npos ? equals : equals - 2);
        const Option *option = is_long ? TRY(find_option(name)) : TRY(find_letter(word[1]));
        if (option == nullptr) {
            unknown = unknown.value_or(name);
            continue;
        }
        std::string value;
        if (option->value.empty()) {
            if (equals != std::string_view::npos)
                return usage_error("option --" + std::string(option->name) + " takes no value");
        } else if (equals != std::string_view::npos) {
            value = word.substr(equals + 1);
        } else if (i + 1 < words.size()) {
            value = words[++i];
        } else {
            return usage_error("option --" + std::string(option->name) +
                               " needs a value: " + std::string(option->value));
        }
        if (!option->value.empty() && value.empty())
            return usage_error("option --" + std::string(option->name) + " has an empty value");
        auto &given = call.values[static_cast<std::size_t>(option->id)];
        if (given && !option->value.empty())
            return usage_error("option --" + std::string(option->name) + " is given twice", "leave one of the two");
        given = std::move(value);
    }
    return rest;
}

// Nouns that are commands that change something cannot be abbreviated.
bool acts(const Noun &noun) { return noun.commands.front().verb.empty() && noun.commands.front().writes; }

Result<const Noun *> find_noun(std::string_view word) {
    const auto find = [&](auto matches) { return std::ranges::find_if(nouns(), matches); };
    auto found = find([&](const Noun &noun) { return noun.name == word; });
    if (found == nouns().end())
        found = find([&](const Noun &noun) { return noun.name.starts_with(word) && !acts(noun); });
    if (found == nouns().end())
        return usage_error("unknown object \"" + std::string(word) + "\"",
                           did_you_mean(word, "", names_of(nouns()), "objects"));
    return &*found;
}

// Null if the word is not a verb of this noun.
const Command *find_command(const Noun &noun, std::string_view word) {
    for (const Command &command : noun.commands)
        if (command.verb == word)
            return &command;
    for (const Command &command : noun.commands)
        if (!command.writes && command.verb.starts_with(word))
            return &command;
    return nullptr;
}

Error unknown_verb(const Noun &noun, std::string_view word) {
    std::vector<std::string_view> verbs;
    for (const Command &command : noun.commands)
        if (!command.verb.empty())
            verbs.push_back(command.verb);
    const std::string name(noun.name);
    if (verbs.empty())
        return usage_error(name + " takes no argument \"" + std::string(word) + "\"");
    return usage_error("unknown verb \"" + std::string(word) + "\" for " + name,
                       did_you_mean(word, name + " ", verbs, "verbs of " + name));
}

std::string spelled(const Noun &noun, const Command &command) {
    return std::string(noun.name) + (command.verb.empty() ? "" : " " + std::string(command.verb));
}

// The noun, and the verb; what is behind them begins at the returned word.
Result<std::size_t> take_command(std::span<const std::string_view> rest, Call &call) {
    call.noun = TRY(find_noun(rest[0]));
    const Command &first = call.noun->commands.front();
    std::size_t next = 1;
    if (rest.size() > 1 && !first.verb.empty()) {
        call.command = find_command(*call.noun, rest[next++]);
        if (call.command == nullptr)
            return unknown_verb(*call.noun, rest[1]);
    } else if (!call.help || first.verb.empty()) {
        call.command = &first;
    }
    return next;
}

// With the options of the command that the other words name.
Error unknown_option(std::string_view name, std::span<const std::string_view> rest) {
    const std::string message = "unknown option --" + std::string(name);
    Call call;
    if (!rest.empty())
        (void)take_command(rest, call);
    if (call.noun == nullptr)
        return usage_error(message, nearest(name, names_of(options())).empty()
                                        ? "see podlanectl --help"
                                        : did_you_mean(name, "--", names_of(options()), "options"));
    if (call.command == nullptr)
        call.command = &call.noun->commands.front(); // the second word may be the option's value
    std::vector<std::string_view> names;
    for (const Option &option : options())
        if (call.command->options.has(option.id))
            names.push_back(option.name);
    return usage_error(message, did_you_mean(name, "--", names, "options of " + spelled(*call.noun, *call.command)));
}

Result<void> check_options(const Call &call) {
    for (const Option &option : options())
        if (call.has(option.id) && !call.command->options.has(option.id))
            return usage_error(spelled(*call.noun, *call.command) + " has no option --" + std::string(option.name),
                               "see podlanectl " + spelled(*call.noun, *call.command) + " --help");
    return {};
}

} // namespace

Error usage_error(std::string message, std::string hint) {
    return {ErrorCode::invalid_environment, std::move(message), std::move(hint)};
}

Error usage_error(std::string message, std::string hint, const Error &cause) {
    if (!cause.hint.empty())
        hint = cause.hint;
    return usage_error(std::move(message), std::move(hint));
}

Result<Call> parse(std::span<const std::string_view> words) {
    Call call;
    std::optional<std::string_view> unknown;
    auto taken = take_options(words, call, unknown);
    if (unknown)
        return unknown_option(*unknown, taken ? *taken : std::vector<std::string_view>{});
    std::vector<std::string_view> rest = TRY(std::move(taken));
    call.help = call.has(Opt::help) || rest.empty();
    // As in ip(8), help can be requested by: the word in place of a noun or a verb.
    if (const auto help = std::ranges::find(rest, "help"); help != rest.end() && help - rest.begin() < 3) {
        call.help = true;
        rest.erase(help);
    }
    if (rest.empty())
        return call;
    std::size_t next = TRY(take_command(rest, call));
    const Command &first = call.noun->commands.front();
    if (call.help)
        return call;
    if (next < rest.size() && call.command->argument.name.empty())
        return first.verb.empty() ? unknown_verb(*call.noun, rest[next])
                                  : usage_error(spelled(*call.noun, *call.command) + " takes no argument \"" +
                                                std::string(rest[next]) + "\"");
    if (next < rest.size())
        call.argument = rest[next++];
    while (next < rest.size() && !call.command->more.name.empty())
        call.more.emplace_back(rest[next++]);
    if (next < rest.size())
        return usage_error(spelled(*call.noun, *call.command) + " takes one argument, not also \"" +
                           std::string(rest[next]) + "\"");
    if (call.argument.empty() && call.command->argument.required)
        return usage_error(spelled(*call.noun, *call.command) + " needs " + std::string(call.command->argument.name),
                           std::string(call.command->argument.help));
    TRY(check_options(call));
    return call;
}

} // namespace podlane::ctl
