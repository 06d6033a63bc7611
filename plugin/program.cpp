// SPDX-License-Identifier: MIT
#include "plugin/program.hpp"

#include "maps/text.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

namespace podlane {

Result<std::string> find_program(const std::vector<std::string> &path, const std::string &name, const std::string &what,
                                 const std::string &correct) {
    std::optional<Error> failed;
    for (const std::string &directory : path) {
        const std::string file = directory + "/" + name;
        struct stat facts {};
        if (stat(file.c_str(), &facts) != 0) {
            if (errno != ENOENT && errno != ENOTDIR)
                failed = system_error(ErrorCode::plugin_not_available, what + " " + file, errno);
            continue;
        }
        if (S_ISREG(facts.st_mode) && access(file.c_str(), X_OK) == 0)
            return file;
        if (S_ISREG(facts.st_mode) && errno != EACCES) {
            failed = system_error(ErrorCode::plugin_not_available, what + " " + file, errno);
            continue;
        }
        if (S_ISREG(facts.st_mode) && (facts.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0) {
            failed = Error{ErrorCode::plugin_not_available, what + " " + file + " may not be executed there",
                           "mount its file system without noexec, or " + correct};
            continue;
        }
        if (S_ISDIR(facts.st_mode)) {
            failed = Error{ErrorCode::plugin_not_available, what + " " + file + " is a directory", correct};
            continue;
        }
        failed = Error{ErrorCode::plugin_not_available, what + " " + file + " is not an executable file",
                       "chmod 755 " + file + ", or " + correct};
    }
    if (failed)
        return *std::move(failed);
    return Error{ErrorCode::plugin_not_available,
                 what + " \"" + name + "\" is not in CNI_PATH (" + join(path, ":") + ")",
                 "install it there, or " + correct};
}

std::string how_it_ended(const Finished &finished) {
    const std::string said = finished.err.substr(0, finished.err.find_last_not_of('\n') + 1);
    return exit_words(finished) + (said.empty() ? "" : ": " + said);
}

std::string remedy_of_signal(const std::string &program, const Finished &finished) {
    constexpr std::array kCrashes = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
    if (std::ranges::find(kCrashes, finished.signal) != kCrashes.end())
        return "see `journalctl -k` for the reason, and install another build of " + program;
    return "another process ended it, or the kernel for lack of memory (see `journalctl -k`): try again";
}

} // namespace podlane
