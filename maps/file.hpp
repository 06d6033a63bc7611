// SPDX-License-Identifier: MIT
// Whole files and streams, also if signals interrupt their system calls.
#pragma once

#include "fd.hpp"
#include "result.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace podlane {

constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kLargestRead = std::size_t{16} << 20U;

// Up to the end, or until `most` bytes were read: a chunk more at most. Errors are "reading NAME".
Result<std::string> read_all(int fd, const std::string &name, std::size_t most = kAnySize);
// Errors are "writing NAME".
Result<void> write_all(int fd, const std::string &name, std::string_view text);

// ErrorCode::missing if there is no such file. `flags`: of open(2), beside O_RDONLY and O_CLOEXEC.
Result<std::string> read_file(const std::string &path, std::size_t most = kAnySize, int flags = 0);

// A file that a person names, or that another program wrote: waits for nothing, and ends. Anything but a regular file
// of at most `most` bytes is an error.
Result<std::string> read_regular_file(const std::string &path, std::size_t most = kLargestRead);

// An absolute path in one spelling: without empty and "." parts, and without a slash at the end. Others stay as they
// are.
std::string plain_path(std::string path);

// Whether something is at this path. A failed look is no answer, but an error: "looking for PATH".
Result<bool> exists(const std::string &path, ErrorCode code = ErrorCode::io_failure);

// A missing file is no error. Other errors are "removing PATH".
Result<void> remove_if_present(const std::string &path);

} // namespace podlane
