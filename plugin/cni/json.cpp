// SPDX-License-Identifier: MIT
#include "plugin/cni/json.hpp"

#include <algorithm>

namespace podlane::cni::json {
namespace {

constexpr std::size_t kLongestQuote = 80;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Counted before parsing, since a parsed document is printed and freed recursively.
bool nested_too_deep(std::string_view text) {
    unsigned depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\')
            ++i;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            ++depth;
        else if (!in_string && (c == '}' || c == ']') && depth > 0)
            --depth;
        if (depth > kDeepestNesting)
            return true;
    }
    return false;
}

std::string dumped(const auto &value, int indent) {
    return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

// A value as an error shows it; a whole object or list would only drown the sentence.
std::string shown(const Value &value) {
    if (value.is_object())
        return "an object";
    if (value.is_array())
        return "a list";
    if (value.is_string())
        return quote(value.get_ref<const std::string &>());
    return dumped(value, -1);
}

} // namespace

Result<Value> parse_object(std::string_view text, std::string_view what) {
    const auto refuse = [&](std::string_view why) {
        return Error{ErrorCode::decode_failure, std::string(what) + " " + std::string(why)};
    };
    if (text.size() > kLongestText)
        return refuse("is longer than " + std::to_string(kLongestText) + " bytes");
    if (nested_too_deep(text))
        return refuse("is nested deeper than " + std::to_string(kDeepestNesting) + " levels");
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return refuse("is empty, expected a JSON object");
    Value value = Value::parse(text.begin(), text.end(), nullptr, false);
    if (value.is_discarded())
        return refuse("is not valid JSON: " + quote(text));
    if (!value.is_object())
        return refuse("is not a JSON object: " + quote(text));
    return value;
}

std::string print(const Printable &value) { return dumped(value, 4); }
std::string print(const Value &value) { return dumped(value, -1); }

std::string quote(std::string_view text) {
    if (text.size() <= kLongestQuote)
        return "\"" + std::string(text) + "\"";
    return "\"" + std::string(text.substr(0, kLongestQuote)) + "…\"";
}

bool equal_any_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

Node Node::at(std::string_view key) const {
    std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
    if (value_ == nullptr || !value_->is_object())
        return {nullptr, std::move(path)};
    const auto found = value_->find(key);
    const bool missing = found == value_->end() || found->is_null();
    return {missing ? nullptr : &*found, std::move(path)};
}

Node Node::at_any_case(std::string_view key) const {
    Node exact = at(key);
    if (exact.present() || value_ == nullptr || !value_->is_object())
        return exact;
    for (const auto &[name, value] : value_->items())
        if (equal_any_case(name, key) && !value.is_null())
            return {&value, std::move(exact.path_)};
    return exact;
}

Result<std::string> Node::text() const {
    if (!present() || !value_->is_string())
        return wrong("a string");
    const auto &text = value_->get_ref<const std::string &>();
    if (text.find('\0') != std::string::npos)
        return wrong("a string without NUL bytes");
    return text;
}

Result<bool> Node::boolean() const {
    if (!present() || !value_->is_boolean())
        return wrong("true or false");
    return value_->get<bool>();
}

Result<std::uint64_t> Node::number(std::uint64_t most) const {
    // A number without sign, fraction and exponent that fits 64 bits is the only one parsed as unsigned.
    if (!present() || !value_->is_number_unsigned() || value_->get<std::uint64_t>() > most)
        return wrong("a whole number from 0 to " + std::to_string(most));
    return value_->get<std::uint64_t>();
}

Result<std::vector<Node>> Node::elements() const {
    if (!present() || !value_->is_array())
        return wrong("a list");
    std::vector<Node> nodes;
    nodes.reserve(value_->size());
    for (const Value &element : *value_)
        nodes.emplace_back(element.is_null() ? nullptr : &element, path_ + "[" + std::to_string(nodes.size()) + "]");
    return nodes;
}

Result<void> Node::must_be_object() const {
    if (present() && !value_->is_object())
        return wrong("an object");
    return {};
}

Error Node::wrong(std::string_view expected) const {
    const std::string found = present() ? "is " + shown(*value_) : "is missing";
    return {ErrorCode::invalid_network_config, path_ + " " + found + ", expected " + std::string(expected)};
}

Result<void> read(const Node &node, std::string &into) {
    if (node.present())
        into = TRY(node.text());
    return {};
}

Result<void> read(const Node &node, bool &into) {
    if (node.present())
        into = TRY(node.boolean());
    return {};
}

Result<void> read(const Node &node, std::uint64_t &into) {
    if (node.present())
        into = TRY(node.number());
    return {};
}

Result<void> read(const Node &node, std::optional<std::uint32_t> &into) {
    if (node.present())
        into = static_cast<std::uint32_t>(TRY(node.number(std::numeric_limits<std::uint32_t>::max())));
    return {};
}

Result<void> read(const Node &node, std::vector<std::string> &into) {
    if (!node.present())
        return {};
    into.clear();
    for (const json::Node &element : TRY(node.elements()))
        into.push_back(TRY(element.text()));
    return {};
}

} // namespace podlane::cni::json
