// SPDX-License-Identifier: MIT
// Network namespaces: open one by any path, and work in it.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace podlane::net {

class Namespace {
  public:
    // ErrorCode::missing if there is nothing at `path`, invalid_environment if it is not a network namespace.
    static Result<Namespace> open(const std::string &path);
    // None in both of these cases: it is gone. What cannot be opened for another reason may be there.
    static Result<std::optional<Namespace>> find(const std::string &path);
    static Result<Namespace> current(); // of the calling thread

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    bool operator==(const Namespace &other) const { return inode_ == other.inode_; }

  private:
    Namespace(Fd fd, std::uint64_t inode) : fd_(std::move(fd)), inode_(inode) {}

    Fd fd_;
    std::uint64_t inode_ = 0;
};

// Inode of the caller's.
Result<std::uint32_t> own_netns();

// Of the namespace of a socket: unlike an inode number, no other namespace gets it in the same boot. 0: the kernel has
// none (Linux before 5.14).
Result<std::uint64_t> netns_cookie(int socket);

// Runs `work` on a thread of its own in the namespace, so that the calling thread never has to return from there.
Result<void> in_namespace(const Namespace &target, const std::function<Result<void>()> &work);

// While it lives, the calling thread is in another namespace; must die on the thread that created it. If the thread
// cannot return, the process ends: use in_namespace() wherever that loses something.
class [[nodiscard]] Entered {
  public:
    Entered(Entered &&) noexcept = default;
    Entered &operator=(Entered &&) = delete;
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;
    ~Entered();

  private:
    friend Result<Entered> enter(const Namespace &target);
    explicit Entered(Fd home) : home_(std::move(home)) {}

    Fd home_;
};

Result<Entered> enter(const Namespace &target);

} // namespace podlane::net
