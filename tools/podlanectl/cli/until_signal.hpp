// SPDX-License-Identifier: MIT
// Lets a command that runs until it is interrupted check for that between two steps.
#pragma once

#include <csignal>

namespace podlane::ctl {

// While an object lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process, SIGPIPE does nothing, and
// SIGWINCH is noted.
class UntilSignal {
  public:
    UntilSignal();
    ~UntilSignal();
    UntilSignal(const UntilSignal &) = delete;
    UntilSignal &operator=(const UntilSignal &) = delete;
    UntilSignal(UntilSignal &&) = delete;
    UntilSignal &operator=(UntilSignal &&) = delete;

    [[nodiscard]] static bool stopped();
    // True once after each change of the terminal's size.
    [[nodiscard]] static bool resized();

  private:
    struct sigaction interrupt_ {};
    struct sigaction terminate_ {};
    struct sigaction hangup_ {};
    struct sigaction pipe_ {};
    struct sigaction window_ {};
};

} // namespace podlane::ctl
