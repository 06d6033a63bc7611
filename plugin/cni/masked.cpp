// SPDX-License-Identifier: MIT
#include "plugin/cni/masked.hpp"

#include "plugin/cni/json.hpp"

#include <algorithm>
#include <array>

namespace podlane::cni {
namespace {

constexpr std::string_view kMask = "(masked)";
// Parts of names, in lower case.
constexpr std::array<std::string_view, 11> kSecrets{"password",
                                                    "passwd",
                                                    "passphrase",
                                                    "secret",
                                                    "token",
                                                    "credential",
                                                    "key",
                                                    "auth",
                                                    "cert",
                                                    "kubeconfig",
                                                    "last-applied-configuration"};

} // namespace

bool sounds_secret(std::string_view name) {
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
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

// Runtimes and multus write labels as [{"key": NAME, "value": TEXT}]: the name is a value there.
bool is_named_secret(const json::Value &object) {
    const auto name = object.find("key");
    return name != object.end() && name->is_string() && object.contains("value") &&
           sounds_secret(name->get_ref<const std::string &>());
}

// As deep as parse_object() allows.
void mask(json::Value &value) { // NOLINT(misc-no-recursion)
    if (value.is_string()) {
        value = without_user(value.get_ref<const std::string &>());
    } else if (value.is_array()) {
        for (json::Value &element : value)
            mask(element);
    } else if (value.is_object()) {
        const bool is_label = value.contains("key") && value.contains("value");
        const bool is_secret_label = is_label && is_named_secret(value);
        for (auto member = value.begin(); member != value.end(); ++member) {
            const bool is_name = is_label && member.key() == "key";
            if ((!is_name && sounds_secret(member.key())) || (is_secret_label && member.key() == "value"))
                member.value() = kMask;
            else
                mask(member.value());
        }
    }
}

} // namespace

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
        all += sounds_secret(name) ? std::string(name) + "=" + std::string(kMask) : without_user(pair);
        pairs.remove_prefix(std::min(pair.size() + 1, pairs.size()));
    }
    return all;
}

} // namespace podlane::cni
