// SPDX-License-Identifier: MIT
// A JSON value, for rooms that do not include a JSON library.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace podlane::output {

struct Value;
using Array = std::vector<Value>;
using Object = std::vector<std::pair<std::string, Value>>; // members keep their order

struct Value {
    std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> data = nullptr;

    Value() = default;
    Value(std::same_as<bool> auto flag) : data(flag) {}
    Value(std::unsigned_integral auto number) requires(!std::same_as<decltype(number), bool>)
        : data(std::uint64_t{number}) {}
    Value(std::signed_integral auto number) : data(std::int64_t{number}) {}
    Value(double number) : data(number) {}
    Value(std::string text) : data(std::move(text)) {}
    Value(std::string_view text) : data(std::string(text)) {}
    Value(const char *text) : data(std::string(text)) {}
    Value(Array items) : data(std::move(items)) {}
    Value(Object members) : data(std::move(members)) {}
    explicit Value(const std::vector<std::string> &items) : data(Array(items.begin(), items.end())) {}
};

// Indented JSON with a line end; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Value &value);

} // namespace podlane::output
