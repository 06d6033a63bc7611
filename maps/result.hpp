// SPDX-License-Identifier: MIT
// The one error type: a value or an Error, with the member names of std::expected (C++23).
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace podlane {

// Kinds of errors, by the numbers of the CNI spec 1.1.0 ("Error", codes 1 to 99); own codes from 100.
enum class ErrorCode : unsigned {
    incompatible_cni_version = 1,
    unsupported_field = 2,
    unknown_container = 3,
    invalid_environment = 4,
    io_failure = 5,
    decode_failure = 6,
    invalid_network_config = 7,
    try_again_later = 11,
    plugin_not_available = 50,
    plugin_limited = 51,
    netlink = 100,
    bpf = 101,
    map_full = 102,
    ipam = 103,
    already_exists = 104,
    check_failed = 105,
    missing = 106,
    internal = 199,
};

// A sentence for people (object and cause), its code, and the remedy if there is one.
struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string message;
    std::string hint{};
    int system_errno = 0;

    // Prepends what was being done: "attaching from_pod to cali12: permission denied".
    [[nodiscard]] Error context(std::string_view doing) const & {
        Error copy = *this;
        return std::move(copy).context(doing);
    }
    [[nodiscard]] Error context(std::string_view doing) && {
        message = std::string(doing) + ": " + message;
        return std::move(*this);
    }
};

// An Error from an errno value (positive), read right after the call that set it.
[[nodiscard]] inline Error system_error(ErrorCode code, std::string_view doing, int system_errno) {
    return {code, std::string(doing) + ": " + std::strerror(system_errno), {}, system_errno};
}

template <typename T> class [[nodiscard]] Result {
  public:
    using value_type = T;
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    [[nodiscard]] bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }
    T &value() & { return std::get<0>(state_); }
    const T &value() const & { return std::get<0>(state_); }
    T &&value() && { return std::get<0>(std::move(state_)); }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T &&operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }
    Error &error() & { return std::get<1>(state_); }
    const Error &error() const & { return std::get<1>(state_); }
    Error &&error() && { return std::get<1>(std::move(state_)); }

  private:
    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
  public:
    using value_type = void;
    Result() = default;
    Result(Error error) : state_(std::move(error)) {}

    [[nodiscard]] bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }
    void value() const {}
    Error &error() & { return std::get<1>(state_); }
    const Error &error() const & { return std::get<1>(state_); }
    Error &&error() && { return std::get<1>(std::move(state_)); }

  private:
    std::variant<std::monostate, Error> state_;
};

// The value of a Result, or a return of its error from the enclosing function. Behind other elements in the braces of
// an aggregate, only where the process ends with the error: GCC and Clang do not destroy elements that are there
// already.
#define TRY(...)                                                                                                       \
    ({                                                                                                                 \
        auto try_result = (__VA_ARGS__);                                                                               \
        if (!try_result)                                                                                               \
            return std::move(try_result).error();                                                                      \
        std::move(try_result).value();                                                                                 \
    })

} // namespace podlane
