// SPDX-License-Identifier: MIT
// Programs run inside a network namespace, without a shell: what they said and how they ended.
#pragma once

#include "loader/net/namespace.hpp"
#include "maps/ip.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace podlane::test {

// The value of a Result that must have one, or the end of this test.
template <typename T> T require(Result<T> result) {
    if (!result)
        throw std::runtime_error(result.error().message + " " + result.error().hint);
    return std::move(result).value();
}
inline void require(const Result<void> &result) {
    if (!result)
        throw std::runtime_error(result.error().message + " " + result.error().hint);
}

inline ip_addr ip(const std::string &text) { return require(parse_ip(text)); }
inline Prefix prefix(const std::string &text) { return require(parse_prefix(text)); }
std::string read_file(const std::string &path);
// Of the environment; ctest sets those that tests need.
std::string variable(const char *name);
// Whether this machine is emulated, some ten times slower than others.
bool slow();

struct Output {
    int rc = -1; // the exit code; 128 and the signal's number if one ended it
    std::string out;
    std::string err;
};

using Variables = std::map<std::string, std::string>;

// `argv[0]` is a path, or a name that is looked up in the system's directories. The environment is `variables` and a
// PATH, and nothing of the test's own. May be called by several threads at once.
Output run(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &input = {},
           const Variables &variables = {});
// The standard output of a program that must succeed.
std::string must_run(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &input = {});
// "ip -n x link show" as argv; no quoting.
std::vector<std::string> words(const std::string &text);

// True as soon as the condition is; false if it is not by the deadline (default: patience() of talk.hpp).
bool wait_until(const std::function<bool()> &condition);
bool wait_until(const std::function<bool()> &condition, std::chrono::milliseconds timeout);

bool ping(const net::Namespace &from, const std::string &to, int count = 1);

} // namespace podlane::test
