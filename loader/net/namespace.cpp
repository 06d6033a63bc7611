// SPDX-License-Identifier: MIT
#include "loader/net/namespace.hpp"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace podlane::net {
namespace {

constexpr const char *kOwnNamespace = "/proc/thread-self/ns/net";

Error cannot_enter(int system_errno) {
    Error error = system_error(ErrorCode::invalid_environment, "entering a network namespace", system_errno);
    if (system_errno == EPERM)
        error.hint = "run it as root with CAP_SYS_ADMIN";
    return error;
}

// A loop of links, a socket or a device that is not there is no namespace either.
bool is_no_namespace(const Error &error) {
    constexpr std::array kNever = {ELOOP, ENAMETOOLONG, ENXIO, ENODEV};
    return error.code == ErrorCode::missing || error.system_errno == 0 ||
           std::ranges::find(kNever, error.system_errno) != kNever.end();
}

} // namespace

Result<Namespace> Namespace::open(const std::string &path) {
    const std::string doing = "opening the network namespace " + path;
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); // a FIFO must not hold us
    if (!fd) {
        const bool gone = errno == ENOENT || errno == ENOTDIR || errno == ESRCH; // ESRCH: /proc/PID while it dies
        return system_error(gone ? ErrorCode::missing : ErrorCode::invalid_environment, doing, errno);
    }
    const int kind = ioctl(fd.get(), NS_GET_NSTYPE);
    if (kind < 0 && errno != ENOTTY && errno != EINVAL && errno != EBADF) // what files that are no namespace say
        return system_error(ErrorCode::io_failure, doing, errno);
    if (kind != CLONE_NEWNET)
        return Error{ErrorCode::invalid_environment, doing + ": it is not a network namespace"};
    struct stat status {};
    if (fstat(fd.get(), &status) != 0)
        return system_error(ErrorCode::io_failure, doing, errno);
    return Namespace(std::move(fd), status.st_ino);
}

Result<std::optional<Namespace>> Namespace::find(const std::string &path) {
    auto opened = open(path);
    if (!opened && !is_no_namespace(opened.error()))
        return std::move(opened).error();
    return opened ? std::optional(std::move(opened).value()) : std::nullopt;
}

Result<Namespace> Namespace::current() { return open(kOwnNamespace); }

Result<std::uint32_t> own_netns() { return static_cast<std::uint32_t>(TRY(Namespace::current()).inode()); }

Result<std::uint64_t> netns_cookie(int socket) {
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    if (getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0 && errno != ENOPROTOOPT)
        return system_error(ErrorCode::io_failure, "reading the cookie of a network namespace", errno);
    return cookie;
}

Result<void> in_namespace(const Namespace &target, const std::function<Result<void>()> &work) {
    Result<void> done;
    const auto run = [&] { done = setns(target.fd(), CLONE_NEWNET) == 0 ? work() : cannot_enter(errno); };
    try {
        std::thread(run).join();
    } catch (const std::system_error &error) {
        return system_error(ErrorCode::io_failure, "starting a thread", error.code().value());
    }
    return done;
}

Result<Entered> enter(const Namespace &target) {
    Fd home(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
    if (!home)
        return system_error(ErrorCode::io_failure, std::string("opening ") + kOwnNamespace, errno);
    if (setns(target.fd(), CLONE_NEWNET) != 0)
        return cannot_enter(errno);
    return Entered(std::move(home));
}

Entered::~Entered() {
    if (!home_ || setns(home_.get(), CLONE_NEWNET) == 0)
        return;
    // The thread would go on working in the wrong namespace.
    std::perror("cannot return to the previous network namespace");
    std::abort();
}

} // namespace podlane::net
