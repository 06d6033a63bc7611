// SPDX-License-Identifier: MIT
#include "plugin/cni/environment.hpp"

#include "maps/abi/config.h"
#include "maps/printable.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/labels.hpp"
#include "maps/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_set>
#include <utility>

namespace podlane::cni {
namespace {

using json::quote;

constexpr std::size_t kLongestName = 127;  // of the container ID and network name in the endpoint's struct
constexpr std::size_t kLongestIfname = 15; // IFNAMSIZ without its NUL
constexpr std::size_t kLongestVariable = std::size_t{128} << 10U; // MAX_ARG_STRLEN

constexpr std::array<std::pair<std::string_view, Command>, 6> kCommands{{{"ADD", Command::add},
                                                                         {"DEL", Command::del},
                                                                         {"CHECK", Command::check},
                                                                         {"GC", Command::gc},
                                                                         {"STATUS", Command::status},
                                                                         {"VERSION", Command::version}}};

// White space beyond ASCII (Unicode's White_Space) in UTF-8; a byte 0xa0 alone is white space to the kernel.
constexpr std::array<std::string_view, 18> kWideSpaces{
    "\xc2\x85",     "\xa0",         "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f"};

Error invalid(std::string_view variable, std::string_view what, std::string_view expected) {
    return {ErrorCode::invalid_environment, std::string(variable) + " " + std::string(what),
            std::string(variable) + ": expected " + std::string(expected)};
}

std::string value_of(const Environment &environment, const std::string &name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string{} : found->second;
}

bool is_one_of(std::string_view text, std::string_view digit, std::string_view word) {
    return text == digit || json::equal_any_case(text, word);
}

// All at once, as the reference does, so that nobody has to come back for the next.
Result<void> check_required(const Environment &environment, std::string_view command,
                            const std::vector<std::string> &names) {
    std::string missing;
    for (const std::string &name : names)
        if (value_of(environment, name).empty())
            missing += (missing.empty() ? "" : ", ") + name;
    if (missing.empty())
        return {};
    return Error{ErrorCode::invalid_environment, "required environment variables missing: " + missing,
                 std::string(command) + " needs " + missing};
}

Result<void> check_container_id(std::string_view id) {
    if (!is_valid_name(id))
        return invalid("CNI_CONTAINERID", "is " + quote(id),
                       "a letter or digit, then letters, digits, '_', '.' or '-', at most 127 characters in all");
    return {};
}

Result<void> check_ifname(std::string_view name) {
    const auto is_bad = [](unsigned char c) { return c == '/' || c == ':' || c == '%' || c == 0 || std::isspace(c); };
    const bool bad = name.size() > kLongestIfname || name == "." || name == ".." || std::ranges::any_of(name, is_bad) ||
                     name.find("\xe3\x80\x80") != std::string_view::npos ||
                     std::ranges::any_of(kWideSpaces, [&](std::string_view space) {
                         return name.find(space) != std::string_view::npos;
                     });
    if (bad) // the kernel would number a name with '%'
        return invalid("CNI_IFNAME", "is " + quote(name),
                       "1 to 15 characters without '/', ':', '%' and white space, and not \".\" or \"..\"");
    if (name == "all" || name == "default")
        return invalid("CNI_IFNAME", "is " + quote(name),
                       "a name that the kernel's settings of interfaces leave free: net.ipv4.conf has directories "
                       "\"all\" and \"default\"");
    return {};
}

// What ADD refuses was never made; a DEL that refused it too would keep the sandbox for ever.
Result<void> read_attachment_variables(const Environment &environment, Request &request) {
    request.container_id = value_of(environment, "CNI_CONTAINERID");
    request.ifname = value_of(environment, "CNI_IFNAME");
    auto checked = check_container_id(request.container_id);
    if (checked)
        checked = check_ifname(request.ifname);
    if (checked || request.command != Command::del)
        return checked;
    request.ignored.push_back(checked.error().message + ", which no ADD accepts");
    request.is_of_no_add = true;
    return {};
}

Result<void> check_netns(std::string_view path) {
    if (!path.empty() && (path.front() != '/' || path.find('\0') != std::string_view::npos))
        return invalid("CNI_NETNS", "is " + quote(path), "the absolute path of a network namespace");
    return {};
}

// Any other value counts as none, in the reference too.
void read_netns_override(const Environment &environment, Request &request) {
    const std::string text = value_of(environment, "CNI_NETNS_OVERRIDE");
    request.netns_override = is_one_of(text, "1", "true");
    const bool is_known = request.netns_override || text.empty() || is_one_of(text, "0", "false");
    if (!is_known && request.command != Command::del)
        request.warnings.push_back("CNI_NETNS_OVERRIDE is " + quote(text) + ", expected 1 or true; it is ignored");
}

// "192.0.2.1/24,2001:db8::1", as the reference `static` plugin reads it; `host-local` wants a single address.
Result<std::vector<Prefix>> parse_ips(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    std::vector<Prefix> prefixes;
    while (!text.empty()) {
        const auto end = std::min(text.find(','), text.size());
        std::string_view item = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        item.remove_prefix(std::min(item.find_first_not_of(kSpace), item.size()));
        item = item.substr(0, item.find_last_not_of(kSpace) + 1);
        const auto prefix = parse_prefix(item);
        if (!prefix) {
            Error wrong = invalid("CNI_ARGS", "has IP with " + quote(item), "an address or prefix as IP");
            wrong.hint += (prefix.error().hint.empty() ? "" : "; ") + prefix.error().hint;
            return wrong;
        }
        prefixes.push_back(*prefix);
    }
    return prefixes;
}

Result<Mac> parse_argument_mac(std::string_view text) {
    const auto mac = parse_mac(text);
    if (!mac || !is_interface_mac(*mac))
        return invalid("CNI_ARGS", "has MAC=" + quote(text), std::string("as MAC ") + kInterfaceMac);
    return *mac;
}

Result<bool> parse_ignore_unknown(std::string_view text) {
    if (is_one_of(text, "1", "true"))
        return true;
    if (is_one_of(text, "0", "false"))
        return false;
    return invalid("CNI_ARGS", "has IgnoreUnknown=" + quote(text), "1, true, 0 or false as IgnoreUnknown");
}

std::string *identity_field(PodIdentity &pod, std::string_view key) {
    if (key == "K8S_POD_NAME")
        return &pod.name;
    if (key == "K8S_POD_NAMESPACE")
        return &pod.ns;
    if (key == "K8S_POD_UID")
        return &pod.uid;
    if (key == "K8S_POD_INFRA_CONTAINER_ID")
        return &pod.infra_container_id;
    return nullptr;
}

// Keys of runtimes that do not set IgnoreUnknown.
bool is_of_runtime(std::string_view key) { return key.starts_with("NOMAD_") || key.starts_with("NERDCTL_"); }

// Kept as a label, as far as it can be one.
void add_unknown(Arguments &arguments, std::string_view key, std::string_view value, std::string &first) {
    (void)add_label(arguments.pod.labels, key, value);
    if (is_of_runtime(key))
        arguments.has_foreign = true;
    else if (first.empty())
        first = std::string(key) + "=" + std::string(value);
}

std::vector<std::string> required_variables(Command command) {
    switch (command) {
    case Command::add:
    case Command::check:
        return {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"};
    case Command::del:
        return {"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"};
    case Command::gc:
    case Command::status:
        return {"CNI_PATH"};
    case Command::version:
        break;
    }
    return {};
}

} // namespace

Result<std::vector<std::string>> split_path(std::string_view text) {
    auto directories = split<std::string>(text, ":");
    for (const std::string &directory : directories)
        if (directory.front() != '/' || directory.find('\0') != std::string::npos)
            return invalid("CNI_PATH", "contains " + quote(directory), "absolute paths with ':' between them");
    if (directories.empty())
        return invalid("CNI_PATH", "names no directory", "the directories of the CNI plugins");
    return directories;
}

bool is_valid_name(std::string_view name) {
    return !name.empty() && name.size() <= kLongestName && is_alphanumeric(name.front()) &&
           std::ranges::all_of(name, [](char c) { return is_key_character(c) && c != '/'; });
}

bool is_interface_mac(const Mac &mac) { return (mac[0] & 1U) == 0 && mac != Mac{} && mac != Mac PODLANE_HOST_MAC; }

Result<Arguments> parse_arguments(std::string_view text) {
    Arguments arguments;
    bool ignore_unknown = false;
    std::string unknown;
    std::unordered_set<std::string_view> keys;
    if (text.size() > kLongestVariable)
        return invalid("CNI_ARGS", "is longer than 128 KiB", "a shorter text");
    while (!text.empty()) {
        const auto end = text.find(';');
        const std::string_view pair = text.substr(0, end);
        const auto equals = pair.find('=');
        const bool last = end == std::string_view::npos;
        if (equals == std::string_view::npos || pair.find('=', equals + 1) != std::string_view::npos ||
            pair.find('\0') != std::string_view::npos || (!last && end + 1 == text.size()))
            return invalid("CNI_ARGS", "contains " + quote(last ? pair : text),
                           "KEY=VALUE pairs with ';' between them");
        text.remove_prefix(last ? text.size() : end + 1);
        const std::string_view key = pair.substr(0, equals);
        const std::string_view value = pair.substr(equals + 1);
        if (!keys.insert(key).second && key != "IgnoreUnknown" && arguments.repeated.empty()) // which says nothing new
            arguments.repeated = key;
        if (std::string *const field = identity_field(arguments.pod, key))
            *field = printable(value); // it is shown in logs, on terminals and as metrics
        else if (key == "IgnoreUnknown")
            ignore_unknown = TRY(parse_ignore_unknown(value));
        else if (key == "IP")
            arguments.ips = TRY(parse_ips(value));
        else if (key == "MAC" && !value.empty())
            arguments.mac = TRY(parse_argument_mac(value));
        else if (key != "MAC")
            add_unknown(arguments, key, value, unknown);
    }
    if (!unknown.empty() && !ignore_unknown)
        return invalid("CNI_ARGS", "contains the unknown " + quote(unknown), "IgnoreUnknown=1 beside keys of others");
    arguments.has_foreign = arguments.has_foreign && !ignore_unknown;
    return arguments;
}

Result<Command> read_command(const Environment &environment) {
    const std::string text = value_of(environment, "CNI_COMMAND");
    const auto *const found = std::ranges::find(kCommands, text, &std::pair<std::string_view, Command>::first);
    if (found != kCommands.end())
        return found->second;
    return invalid("CNI_COMMAND", text.empty() ? "is not set" : "is " + quote(text),
                   "ADD, DEL, CHECK, GC, STATUS or VERSION");
}

Result<Arguments> read_environment(const Environment &environment, Request &request) {
    const Command command = request.command;
    if (command == Command::version) // runtimes set any values: CNI_NETNS=dummy, CNI_IFNAME=dummy
        return Arguments{};
    // DEL removes what ADD made, whatever else is wrong.
    const bool lenient = command == Command::del;
    if (auto checked = check_required(environment, value_of(environment, "CNI_COMMAND"), required_variables(command));
        !checked && lenient && check_required(environment, "DEL", {"CNI_CONTAINERID", "CNI_IFNAME"}))
        request.incomplete = std::move(checked).error();
    else
        TRY(std::move(checked));
    auto path = split_path(value_of(environment, "CNI_PATH"));
    if (!path && (lenient || command == Command::gc))
        request.ignored.push_back(path.error().message);
    else
        request.path = TRY(std::move(path));
    if (command == Command::gc || command == Command::status)
        return Arguments{};
    request.netns = value_of(environment, "CNI_NETNS");
    TRY(read_attachment_variables(environment, request));
    if (auto checked = check_netns(request.netns); !checked && lenient) {
        request.ignored.push_back(checked.error().message);
        request.netns.clear();
    } else {
        TRY(std::move(checked));
    }
    read_netns_override(environment, request);
    request.args = value_of(environment, "CNI_ARGS");
    auto arguments = parse_arguments(request.args);
    if (arguments && arguments->has_foreign)
        request.args += ";IgnoreUnknown=1"; // an IPAM plugin is to accept them too
    if (arguments || !lenient)
        return arguments;
    request.ignored.push_back(arguments.error().message);
    request.args.clear(); // an IPAM plugin would refuse them too
    return Arguments{};
}

} // namespace podlane::cni
