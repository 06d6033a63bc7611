// SPDX-License-Identifier: MIT
#include "plugin/cni/masked.hpp"

#include "maps/text.hpp"
#include "plugin/cni/json.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace podlane::cni {
namespace {

constexpr std::string_view kMask = "(masked)";
// Parts of names, in lower case.
constexpr std::array<std::string_view, 13> kSecrets{"pass",
                                                    "pwd",
                                                    "secret",
                                                    "token",
                                                    "credential",
                                                    "key",
                                                    "auth",
                                                    "cert",
                                                    "private",
                                                    "cookie",
                                                    "bearer",
                                                    "kubeconfig",
                                                    "last-applied-configuration"};

} // namespace

bool sounds_secret(std::string_view name) {
    const std::string lower = lower_case(std::string(name));
    return std::ranges::any_of(kSecrets, [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

namespace {

// "https://user:password@host/" loses what stands before the host; a text may hold several.
std::string without_user(std::string_view text) {
    constexpr std::string_view kScheme = "://";
    std::string kept;
    for (std::size_t at = text.find(kScheme); at != std::string_view::npos; at = text.find(kScheme)) {
        kept += text.substr(0, at + kScheme.size());
        text.remove_prefix(at + kScheme.size());
        const std::string_view authority = text.substr(0, text.find_first_of("/?# ,"));
        if (const std::size_t host = authority.rfind('@'); host != std::string_view::npos) {
            kept += kMask;
            text.remove_prefix(host);
        }
    }
    return kept += text;
}

bool is_of_name(char c) { return is_alphanumeric(c) || c == '_' || c == '-' || c == '.'; }

// Where the value ends that begins here: at the quote that it begins with, or before the next separator. Lists, objects
// and what begins in the next line have no end that is known here.
std::size_t end_of_value(std::string_view text, std::size_t start) {
    if (start >= text.size() || std::string_view("{[|>\r\n").find(text[start]) != std::string_view::npos)
        return text.size();
    if (text[start] != '"' && text[start] != '\'')
        return std::min(text.find_first_of(" \t\r\n,;&|\"'}])", start), text.size());
    std::size_t end = start + 1;
    while (end < text.size() && text[end] != text[start])
        end += text[end] == '\\' ? 2 : 1;
    return std::min(end, text.size());
}

// "--password" and "Bearer" are followed by what they name, other names by '=' or ':' before it.
std::size_t start_of_value(std::string_view text, std::string_view name, std::size_t after) {
    const std::size_t separator = text.find_first_not_of("\"' \t", after);
    const bool has_separator =
        separator != std::string_view::npos && (text[separator] == '=' || text[separator] == ':');
    const bool is_followed = name.starts_with("--") || name == "Bearer" || name == "Basic";
    if (!has_separator && !(is_followed && after < text.size() && text[after] == ' '))
        return std::string_view::npos;
    return text.find_first_not_of(" \t", has_separator ? separator + 1 : after);
}

// "PASSWORD=x", "token: x", {"secret": "x"} in a text, "--password x", "Authorization: Bearer x", "Bearer x".
std::string without_pairs(std::string_view text) {
    std::string kept;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t after = at;
        while (after < text.size() && is_of_name(text[after]))
            ++after;
        const std::string_view name = text.substr(at, after - at);
        const bool is_secret = !name.empty() && (sounds_secret(name) || name == "Basic");
        std::size_t value = is_secret ? start_of_value(text, name, after) : std::string_view::npos;
        if (value == std::string_view::npos) {
            kept += text.substr(at, std::max<std::size_t>(name.size(), 1));
            at += std::max<std::size_t>(name.size(), 1);
            continue;
        }
        std::size_t end = end_of_value(text, value);
        if (const std::string_view scheme = text.substr(value, end - value); scheme == "Bearer" || scheme == "Basic")
            end = end_of_value(text, std::min(text.find_first_not_of(' ', end), text.size()));
        if (value < text.size() && (text[value] == '"' || text[value] == '\''))
            ++value;
        kept += text.substr(at, value - at);
        kept += kMask;
        at = std::max(end, value);
    }
    return kept;
}

// Runtimes and multus write labels as [{"key": NAME, "value": TEXT}], Kubernetes variables with "name": the name is a
// value there. Null: it is no such pair.
const std::string *name_of_pair(const json::Value &object) {
    for (const char *member : {"key", "name"})
        if (const auto name = object.find(member);
            name != object.end() && name->is_string() && object.contains("value"))
            return &name->get_ref<const std::string &>();
    return nullptr;
}

bool is_secret_flag(const json::Value &value) {
    const auto *const text = value.get_ptr<const std::string *>();
    return text != nullptr && text->starts_with('-') && text->find('=') == std::string::npos && sounds_secret(*text);
}

// As deep as parse_object() allows.
void mask(json::Value &value) { // NOLINT(misc-no-recursion)
    if (value.is_string()) {
        value = masked_text(value.get_ref<const std::string &>());
    } else if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i)
            if (i > 0 && is_secret_flag(value[i - 1]))
                value[i] = kMask;
            else
                mask(value[i]);
    } else if (value.is_object()) {
        const std::string *const pair = name_of_pair(value);
        const bool is_pair = pair != nullptr;
        const bool is_secret_pair = is_pair && sounds_secret(*pair);
        for (auto member = value.begin(); member != value.end(); ++member) {
            const bool is_name = is_pair && member.key() == "key";
            if ((!is_name && sounds_secret(member.key())) || (is_secret_pair && member.key() == "value"))
                member.value() = kMask;
            else
                mask(member.value());
        }
    }
}

// A text that is a JSON object, or a list, as annotations often are.
std::optional<std::string> masked_within(std::string_view text) { // NOLINT(misc-no-recursion)
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos || (text[first] != '{' && text[first] != '['))
        return std::nullopt;
    auto document = json::parse_object("{\"\":" + std::string(text) + "}", "the text");
    if (!document || document->size() != 1)
        return std::nullopt;
    mask(document->begin().value());
    return json::print(document->begin().value());
}

} // namespace

std::string masked_text(std::string_view text) { // NOLINT(misc-no-recursion)
    if (text.find("-----BEGIN") != std::string_view::npos)
        return std::string(kMask);
    if (auto document = masked_within(text))
        return *std::move(document);
    return without_pairs(without_user(text));
}

std::string masked(std::string_view text) {
    auto document = json::parse_object(text, "the document");
    if (!document)
        return std::to_string(text.size()) + " bytes that are no JSON object";
    mask(*document);
    return json::print(*document);
}

std::string masked_pairs(std::string_view pairs) {
    std::string all;
    while (!pairs.empty()) {
        const std::string_view pair = pairs.substr(0, pairs.find(';'));
        const std::string_view name = pair.substr(0, pair.find('='));
        all += all.empty() ? "" : ";";
        all += sounds_secret(name) ? std::string(name) + "=" + std::string(kMask) : masked_text(pair);
        pairs.remove_prefix(std::min(pair.size() + 1, pairs.size()));
    }
    return all;
}

} // namespace podlane::cni
