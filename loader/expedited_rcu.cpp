// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace podlane {
namespace {

constexpr const char *kPath = "/sys/kernel/rcu_expedited"; // everybody may open and lock it
constexpr std::string_view kOff = "0\n";
constexpr std::string_view kOurs = "20556\n"; // any number but 0 is "on" to the kernel; this one is "PL"

bool write(const Fd &file, std::string_view value) {
    return pwrite(file.get(), value.data(), value.size(), 0) == static_cast<ssize_t>(value.size());
}

bool has(const Fd &file, std::string_view value) {
    std::array<char, 16> text{};
    const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
    return std::string_view(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size)).starts_with(value);
}

Fd open_lock() { return Fd(open(kExpeditedRcuLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)); }

// Unless another scope is open, or another program has written since; where there is no lock, no scope is open.
// true: switched off.
bool switch_off(const Fd &file, const Fd &lock) {
    return (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) == 0) && has(file, kOurs) && write(file, kOff);
}

// Another scope holds it exclusively for two system calls. A process that was stopped there must stop no other: without
// the lock a call takes longer, and does the same.
bool share(const Fd &lock) {
    constexpr int kAttempts = 100;
    constexpr useconds_t kPause = 100;
    for (int i = 0; i < kAttempts; ++i) {
        if (flock(lock.get(), LOCK_SH | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        usleep(kPause);
    }
    return false;
}

bool is_allowed = true; // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): set once, by the configuration

} // namespace

void ExpeditedRcu::forbid() { is_allowed = false; }

bool ExpeditedRcu::clean_up() {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    return file && has(file, kOurs) && switch_off(file, open_lock());
}

ExpeditedRcu::ExpeditedRcu() {
    if (!is_allowed)
        return;
    Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    Fd lock = file ? open_lock() : Fd();
    if (!lock || !share(lock) || !(has(file, kOff) || has(file, kOurs)) || !write(file, kOurs))
        return;
    file_ = std::move(file);
    lock_ = std::move(lock);
}

ExpeditedRcu::~ExpeditedRcu() {
    if (file_)
        (void)switch_off(file_, lock_);
}

} // namespace podlane
