// SPDX-License-Identifier: MIT
// A system call that a test needs has failed.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace podlane::test {

[[noreturn]] inline void throw_errno(const std::string &what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

} // namespace podlane::test
