// SPDX-License-Identifier: MIT
#include "plugin/cni/json.hpp"

#include "maps/text.hpp"

#include <algorithm>
#include <unordered_set>

namespace podlane::cni::json {
namespace {

constexpr std::size_t kLongestQuote = 80;

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

// Follows the parser: where it stops, and which keys an object names twice.
struct Locator : nlohmann::json_sax<Value> {
    std::size_t at = 0;
    std::vector<std::string> repeated;
    std::vector<std::unordered_set<std::string>> open;

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t &) override { return true; }
    bool string(string_t &) override { return true; }
    bool binary(binary_t &) override { return true; }
    bool start_object(std::size_t) override {
        open.emplace_back();
        return true;
    }
    bool key(string_t &name) override {
        if (!open.back().insert(open.size() == 1 ? lower_case(name) : name).second)
            repeated.push_back(name);
        return true;
    }
    bool end_object() override {
        open.pop_back();
        return true;
    }
    bool start_array(std::size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(std::size_t position, const std::string &, const nlohmann::detail::exception &) override {
        at = position;
        return false;
    }
};

// "line 3, column 7: \"}\"" of the last byte that the parser read; it counts them from 1.
std::string place_of(std::string_view text, std::size_t position) {
    const std::string_view before = text.substr(0, position == 0 ? 0 : position - 1);
    const auto line = std::ranges::count(before, '\n') + 1;
    const auto start = before.rfind('\n');
    const std::size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    std::string_view rest = text.substr(before.size());
    rest = rest.substr(0, rest.find('\n'));
    return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
           (rest.empty() ? "it ends too early" : quote(rest));
}

std::string dumped(const auto &value, int indent) {
    return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

std::string like(std::string_view what, std::string_view example) {
    return std::string(what) + (example.empty() ? "" : " such as ") + std::string(example);
}

// A value as an error shows it; a whole object or list would only drown the sentence.
std::string shown(const Value &value) {
    if (value.is_object())
        return "an object";
    if (value.is_array())
        return "a list";
    if (!value.is_string())
        return dumped(value, -1);
    const std::string text = dumped(value, -1); // a line break as it was written
    return quote(std::string_view(text).substr(1, text.size() - 2));
}

} // namespace

Result<Value> parse_object(std::string_view text, std::string_view what, std::size_t longest) {
    const auto refuse = [&](std::string_view why) {
        return Error{ErrorCode::decode_failure, std::string(what) + " " + std::string(why)};
    };
    if (text.size() > longest)
        return refuse("is longer than " + std::to_string(longest) + " bytes");
    if (nested_too_deep(text))
        return refuse("is nested deeper than " + std::to_string(kDeepestNesting) + " levels");
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return refuse("is empty, expected a JSON object");
    if (text.starts_with("\xef\xbb\xbf"))
        return refuse("begins with a byte order mark, which JSON does not allow: save it as UTF-8 without BOM");
    if (const auto at = text.find('\0'); at != std::string_view::npos) // the parser would stop there
        return refuse("has a NUL byte, which JSON does not allow: " + place_of(text, at));
    Value value = Value::parse(text.begin(), text.end(), nullptr, false);
    if (value.is_discarded()) {
        Locator locator;
        Value::sax_parse(text.begin(), text.end(), &locator);
        return refuse("is not valid JSON: " + place_of(text, locator.at));
    }
    if (!value.is_object())
        return refuse("is not a JSON object: " + quote(print(value)));
    return value;
}

std::vector<std::string> repeated_keys(std::string_view text) {
    Locator locator;
    Value::sax_parse(text.begin(), text.end(), &locator);
    return locator.repeated;
}

std::string print(const Printable &value, int indent) { return dumped(value, indent); }
std::string print(const Value &value) { return dumped(value, -1); }

std::string quote(std::string_view text) {
    if (text.size() <= kLongestQuote)
        return "\"" + std::string(text) + "\"";
    return "\"" + std::string(text.substr(0, kLongestQuote)) + "…\"";
}

bool equal_any_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return lower_case(x) == lower_case(y); });
}

void erase_any_case(Value &object, std::string_view key) {
    for (auto at = object.begin(); at != object.end();)
        at = equal_any_case(at.key(), key) ? object.erase(at) : std::next(at);
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

Result<std::string> Node::text(std::string_view example) const {
    if (!present() || !value_->is_string())
        return wrong(like("a string", example));
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

Result<std::vector<Node>> Node::elements(std::string_view example) const {
    if (!present() || !value_->is_array())
        return wrong(like("a list", example));
    std::vector<Node> nodes;
    nodes.reserve(value_->size());
    for (const Value &element : *value_)
        nodes.emplace_back(element.is_null() ? nullptr : &element, path_ + "[" + std::to_string(nodes.size()) + "]");
    return nodes;
}

Result<void> Node::must_be_object(std::string_view example) const {
    if (present() && !value_->is_object())
        return wrong(like("an object", example));
    return {};
}

Error Node::wrong(std::string_view expected, std::string hint) const {
    const std::string found = present() ? "is " + shown(*value_) : "is missing";
    return {ErrorCode::invalid_network_config, path_ + " " + found + ", expected " + std::string(expected),
            std::move(hint)};
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

Result<void> read(const Node &node, std::optional<bool> &into) {
    bool value = false;
    TRY(read(node, value));
    if (node.present())
        into = value;
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
    for (const json::Node &element : TRY(node.elements(R"(["…"])")))
        into.push_back(TRY(element.text()));
    return {};
}

Value &member(Value &object, std::string_view name) {
    for (auto at = object.begin(); at != object.end(); ++at)
        if (equal_any_case(at.key(), name)) {
            if (!at->is_object())
                *at = Value::object();
            return *at;
        }
    return object[std::string(name)] = Value::object();
}

} // namespace podlane::cni::json
