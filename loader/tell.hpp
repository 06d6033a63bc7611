// Tells the connections that are there of a limit before it begins: an iterator of sockets, loaded for that moment.
#pragma once

#include "loader/limit.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <memory>
#include <string>

struct bpf_link;
struct tell_bpf;

namespace podlane {

class Teller {
  public:
    // An error where nothing paces below `root`, or where the kernel cannot do it: before 6.12 there is no way to have
    // pl_pace go on with a socket that it was not asked to look at when the connection began.
    static Result<Teller> load(const std::string &root);

    // What run() tells of besides the limits there are: those the endpoint behind `ifindex` will have with `flags`. The
    // next run changes the shares of limits whose rates change.
    void expect(std::uint32_t ifindex, std::uint32_t flags, const RateChanges &changes) const;
    // Tells the sockets of the calling thread's network namespace.
    [[nodiscard]] Result<void> run() const;

  private:
    using Object = std::unique_ptr<tell_bpf, void (*)(tell_bpf *)>;
    using Attached = std::unique_ptr<bpf_link, int (*)(bpf_link *)>;
    Teller(Object object, Attached window, Fd sockets)
        : object_(std::move(object)), window_(std::move(window)), sockets_(std::move(sockets)) {}

    Object object_;
    Attached window_; // the congestion control that makes windows smaller
    Fd sockets_;      // the iterator
};

} // namespace podlane
