// SPDX-License-Identifier: MIT
#include "tools/podlanectl/cli/until_signal.hpp"

namespace podlane::ctl {
namespace {

volatile std::sig_atomic_t stop_flag = 0;
volatile std::sig_atomic_t window_flag = 0;

void note_stop(int) { stop_flag = 1; }
void note_window(int) { window_flag = 1; }

void set(int signal, void (*handler)(int), struct sigaction *before) {
    struct sigaction action {};
    action.sa_handler = handler; // without SA_RESTART: waiting ends
    sigaction(signal, &action, before);
}

} // namespace

UntilSignal::UntilSignal() {
    stop_flag = 0;
    window_flag = 0;
    set(SIGINT, note_stop, &interrupt_);
    set(SIGTERM, note_stop, &terminate_);
    set(SIGHUP, note_stop, &hangup_);
    set(SIGPIPE, SIG_IGN, &pipe_);
    set(SIGWINCH, note_window, &window_);
}

UntilSignal::~UntilSignal() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    sigaction(SIGHUP, &hangup_, nullptr);
    sigaction(SIGPIPE, &pipe_, nullptr);
    sigaction(SIGWINCH, &window_, nullptr);
}

bool UntilSignal::stopped() { return stop_flag != 0; }

bool UntilSignal::resized() {
    const bool was = window_flag != 0;
    window_flag = 0;
    return was;
}

} // namespace podlane::ctl
