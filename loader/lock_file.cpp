// SPDX-License-Identifier: MIT
#include "loader/lock_file.hpp"

#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <set>
#include <sstream>

namespace podlane {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 20U;

// While it lives, a system call in which this thread waits is interrupted again and again.
class Interruptions {
  public:
    Interruptions() {
        struct sigaction nothing {};
        nothing.sa_handler = [](int) {};
        sigaction(SIGALRM, &nothing, nullptr); // and stays: another thread may be waiting, too
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = SIGALRM;
        event._sigev_un._tid = gettid(); // glibc before 2.37 has no other name for it
        constexpr timespec kTenth{.tv_sec = 0, .tv_nsec = 100'000'000};
        const itimerspec often{kTenth, kTenth};
        has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
        if (!has_timer_ || timer_settime(timer_, 0, &often, nullptr) != 0)
            error_ = errno;
    }
    ~Interruptions() {
        if (has_timer_)
            timer_delete(timer_);
    }
    Interruptions(Interruptions &&) = delete;
    Interruptions &operator=(Interruptions &&) = delete;
    Interruptions(const Interruptions &) = delete;
    Interruptions &operator=(const Interruptions &) = delete;

    [[nodiscard]] int error() const { return error_; }

  private:
    timer_t timer_{};
    bool has_timer_ = false;
    int error_ = 0;
};

// 0, or what failed; ETIMEDOUT after `most`. Waits in the kernel: if many do, whoever looks now and
// then may never find the lock free.
int wait_for(const Fd &file, int operation, std::chrono::seconds most) {
    if (flock(file.get(), operation | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK && errno != EINTR)
        return errno;
    const std::uint64_t until = monotonic_ns() + static_cast<std::uint64_t>(most.count()) * kNsPerSecond;
    const Interruptions while_waiting;
    if (while_waiting.error() != 0)
        return while_waiting.error();
    while (flock(file.get(), operation) != 0) {
        if (errno != EINTR)
            return errno;
        if (monotonic_ns() >= until)
            return ETIMEDOUT;
    }
    return 0;
}

// As /proc/locks has the file: "00:2c:17", in hexadecimal but for the inode.
std::string name_in_locks(const struct stat &facts) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%02x:%02x:%llu", major(facts.st_dev), minor(facts.st_dev),
                  static_cast<unsigned long long>(facts.st_ino));
    return text.data();
}

std::vector<std::string> holders_of(const Fd &file) {
    struct stat facts {};
    const auto locks = read_file("/proc/locks", kMostText);
    if (!locks || fstat(file.get(), &facts) != 0)
        return {};
    return lock_holders_in(*locks, name_in_locks(facts));
}

Error still_held(const Fd &file, const std::string &path, std::chrono::seconds most) {
    std::string names, numbers;
    for (const std::string &pid : holders_of(file)) {
        const auto comm = read_file("/proc/" + pid + "/comm", kMostText);
        if (!comm)
            continue;
        names += (names.empty() ? " by process " : ", ") + pid + " (" + command_in(*comm) + ")";
        numbers += (numbers.empty() ? "" : " ") + pid;
    }
    return {ErrorCode::try_again_later,
            "locking " + path + ": the lock has been held for " + std::to_string(most.count()) + " s" + names,
            numbers.empty() ? "a process that holds it is stopped, frozen or slow: `fuser -v " + path + "` shows it"
                            : "if it is stopped or frozen, let it go on (`kill -CONT " + numbers +
                                  "`, or thaw its cgroup) or end it, and repeat the call"};
}

} // namespace

std::vector<std::string> lock_holders_in(const std::string &locks, std::string_view file) {
    std::vector<std::string> all;
    std::istringstream lines(locks);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string number, kind, strength, access, pid, name; // of one that waits, the kind is "->"
        if (words >> number >> kind >> strength >> access >> pid >> name && kind == "FLOCK" && name == file &&
            parse_number<std::uint32_t>(pid))
            all.push_back(std::move(pid));
    }
    return all;
}

std::string command_in(std::string_view comm) { return printable(comm.substr(0, comm.find('\n'))); }

Result<void> lock_file(const Fd &file, int operation, const std::string &path, ErrorCode code,
                       std::chrono::seconds most) {
    static thread_local std::set<std::string> waited_for; // in vain
    const int error = wait_for(file, operation, waited_for.contains(path) ? std::chrono::seconds(0) : most);
    if (error == ETIMEDOUT) {
        waited_for.insert(path);
        return still_held(file, path, most);
    }
    if (error == EAGAIN) { // of timer_create(2); flock(2) would have waited
        Error failed = system_error(ErrorCode::try_again_later, "waiting for the lock of " + path, error);
        failed.hint =
            "raise the caller's limit of pending signals (`ulimit -i`; LimitSIGPENDING= of a unit of systemd)";
        return failed;
    }
    return error == 0 ? Result<void>{} : system_error(code, "locking " + path, error);
}

} // namespace podlane
