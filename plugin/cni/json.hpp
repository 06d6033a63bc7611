// SPDX-License-Identifier: MIT
// Bounded parsing and checked reading of untrusted JSON: nothing here throws, and an error names the key it is about.
#pragma once

#include "maps/result.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::cni::json {

using Value = nlohmann::json;
using Printable = nlohmann::ordered_json; // keeps the order in which keys were put; slow with many keys

inline constexpr std::size_t kLongestText = std::size_t{1} << 20U;
inline constexpr unsigned kDeepestNesting = 32;

// An object. `what` is named in the errors, which have code 6. Of a repeated key the last one counts, as in Go.
Result<Value> parse_object(std::string_view text, std::string_view what, std::size_t longest = kLongestText);

// Keys that an object of the text names twice; those of the outermost one, which Go reads in any case, in any case. The
// text has been parsed by parse_object().
std::vector<std::string> repeated_keys(std::string_view text);

// Bytes that are no UTF-8 become U+FFFD.
std::string print(const Printable &value, int indent = 4);
std::string print(const Value &value);

// Clipped, in quotes: for error messages.
std::string quote(std::string_view text);

// A place in a document: the value found there, or none, and the path that leads to it. JSON null counts as none.
class Node {
  public:
    Node(const Value *value, std::string path) : value_(value), path_(std::move(path)) {}

    [[nodiscard]] Node at(std::string_view key) const;
    // For keys that runtimes write, which Go reads in any case. The exact spelling wins.
    [[nodiscard]] Node at_any_case(std::string_view key) const;

    [[nodiscard]] bool present() const { return value_ != nullptr; }
    [[nodiscard]] const Value &value() const { return *value_; } // only if present()
    [[nodiscard]] const std::string &path() const { return path_; }

    // Each is an error on a value of another type, and on none; the error shows the example.
    [[nodiscard]] Result<std::string> text(std::string_view example = {}) const; // without NUL bytes
    [[nodiscard]] Result<bool> boolean() const;
    [[nodiscard]] Result<std::uint64_t> number(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const;
    [[nodiscard]] Result<std::vector<Node>> elements(std::string_view example = {}) const;
    [[nodiscard]] Result<void> must_be_object(std::string_view example = {}) const; // or none

    // Code 7: "mtu is -1, expected a whole number".
    [[nodiscard]] Error wrong(std::string_view expected, std::string hint = {}) const;

  private:
    const Value *value_;
    std::string path_;
};

// Reads a value into `into` if there is one, and leaves that alone if there is none.
Result<void> read(const Node &node, std::string &into);
Result<void> read(const Node &node, bool &into);
Result<void> read(const Node &node, std::optional<bool> &into);
Result<void> read(const Node &node, std::uint64_t &into);
Result<void> read(const Node &node, std::optional<std::uint32_t> &into);
Result<void> read(const Node &node, std::vector<std::string> &into);

[[nodiscard]] bool equal_any_case(std::string_view a, std::string_view b);
// However the key was spelled, it is gone: Go would read any spelling.
void erase_any_case(Value &object, std::string_view key);

// The object that is a member of another, whichever way a runtime spelled it; made if it is missing, or none.
Value &member(Value &object, std::string_view name);

} // namespace podlane::cni::json
