// SPDX-License-Identifier: MIT
// Announces a limit to existing connections before it is enforced: an iterator of sockets, loaded for that moment.
#pragma once

#include "loader/limit.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <memory>
#include <string>

struct cut_window_bpf;
struct notify_sockets_bpf;

namespace podlane {

class SocketNotifier {
  public:
    // Fails if nothing paces below `root`, and before Linux 6.12: sock_ops callbacks cannot be enabled on an
    // established socket there.
    static Result<SocketNotifier> load(const std::string &root);

    // run() announces the limits that the endpoint of `ifindex` will have with `flags`, besides the existing ones. The
    // next run scales the shares of limits whose rates change.
    void expect(std::uint32_t ifindex, std::uint32_t flags, const RateChanges &changes) const;
    // Notifies the sockets of the calling thread's network namespace.
    [[nodiscard]] Result<void> run() const;

  private:
    using Object = std::unique_ptr<notify_sockets_bpf, void (*)(notify_sockets_bpf *)>;
    using Window = std::unique_ptr<cut_window_bpf, void (*)(cut_window_bpf *)>;
    SocketNotifier(Object object, Window window, Fd registered, Fd sockets)
        : object_(std::move(object)), window_(std::move(window)), registered_(std::move(registered)),
          sockets_(std::move(sockets)) {}

    Object object_;
    Window window_; // the congestion control that cuts windows
    Fd registered_; // its registration
    Fd sockets_;    // the iterator
};

} // namespace podlane
