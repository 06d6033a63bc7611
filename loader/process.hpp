// SPDX-License-Identifier: MIT
// Runs another program with given input, environment and no shell, and collects its output. This one's own streams.
#pragma once

#include "maps/result.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

struct Finished {
    int exit_code = 0; // 128 + signal if it was killed
    int signal = 0;    // that killed it
    std::string out;
    std::string err; // the first few KiB
};

// "exited with code 3", "was killed by signal 11 (Segmentation fault)".
std::string exit_words(const Finished &finished);

constexpr std::chrono::milliseconds kProcessTimeLimit = std::chrono::seconds(30);

// `environment` holds "NAME=value" entries. The program is killed with what it has started, and the call fails,
// after `limit` (ErrorCode::try_again_later), after 1 MiB on standard output, and if its pipes fail; a daemon lives on
// that has left the process group and whose parent has ended. Until it ends, it does not outlive a caller that is
// killed, nor does what it has started in its process group. What has left that (setsid(1), timeout(1)) goes on then:
// the caller cannot kill it any more, and being its PR_SET_CHILD_SUBREAPER would not change that.
Result<Finished> run_process(const std::string &path, const std::vector<std::string> &environment,
                             const std::string &input, const std::vector<std::string> &arguments = {},
                             std::chrono::milliseconds limit = kProcessTimeLimit);

// By PATH, and in the usual directories. Empty if it is not installed.
Result<std::string> find_program(std::string_view name);

// Reserves those of the descriptors 0 to 2 that the caller left closed: the next file opened would take one of them,
// and what is printed would be written into it. Their use keeps failing (EBADF).
void reserve_standard_streams();

// From here on a write beyond RLIMIT_FSIZE fails (EFBIG), rather than ending the process without a word (SIGXFSZ).
void survive_file_size_limit();

} // namespace podlane
