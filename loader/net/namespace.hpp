// Network namespaces: open one by any path, enter it for a scope, come back for certain.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <string>

namespace podlane::net {

class Namespace {
  public:
    // ErrorCode::missing where nothing is at `path` (any more), invalid_environment where it is not a network
    // namespace.
    static Result<Namespace> open(const std::string &path);
    static Result<Namespace> current(); // of the calling thread

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::uint64_t inode() const { return inode_; }
    bool operator==(const Namespace &other) const { return inode_ == other.inode_; }

  private:
    Namespace(Fd fd, std::uint64_t inode) : fd_(std::move(fd)), inode_(inode) {}

    Fd fd_;
    std::uint64_t inode_ = 0;
};

// While it lives, the calling thread is in another namespace; must die on the thread that made it.
class [[nodiscard]] Entered {
  public:
    Entered(Entered &&) noexcept = default;
    Entered &operator=(Entered &&) = delete;
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;
    ~Entered(); // aborts with a sentence if the way back is gone

  private:
    friend Result<Entered> enter(const Namespace &target);
    explicit Entered(Fd home) : home_(std::move(home)) {}

    Fd home_;
};

Result<Entered> enter(const Namespace &target);

} // namespace podlane::net
