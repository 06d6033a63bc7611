// SPDX-License-Identifier: MIT
// Traffic without a pause, from a client to an echo server and back, that counts what is lost on the way.
#pragma once

#include "tests/harness/talk.hpp"

#include <atomic>
#include <cstdint>
#include <thread>

namespace podlane::test {

// Runs in a thread of its own from its making until end(). There is always something under way, and never more than
// a socket's queue holds for certain.
class Stream {
  public:
    Stream(const net::Namespace &where, Transport transport, const Endpoint &server);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    // Packets (UDP) or bytes (TCP) that came back so far: a stream that is stuck shows here.
    [[nodiscard]] std::uint64_t received() const { return received_; }

    struct Account {
        std::uint64_t sent = 0;     // datagrams, or segments with data
        std::uint64_t lost = 0;     // datagrams that never came back, or segments that had to be sent again
        std::uint64_t received = 0; // as received()
    };
    // Waits for what is still under way.
    Account end();

  private:
    void run_datagrams();
    void run_connection();
    [[nodiscard]] bool wait(short events, int milliseconds) const;

    Transport transport_;
    Fd socket_;
    std::atomic<bool> stop_ = false;
    std::atomic<std::uint64_t> sent_ = 0;
    std::atomic<std::uint64_t> received_ = 0;
    std::thread thread_;
};

} // namespace podlane::test
