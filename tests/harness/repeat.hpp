// SPDX-License-Identifier: MIT
// Work in the background of a test.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

namespace podlane::test {

// Does this again and again, in a thread of its own, until it goes.
class Repeat {
  public:
    template <typename Step>
    explicit Repeat(Step step)
        : thread_([this, step = std::move(step)]() mutable {
              while (!done_)
                  step();
          }) {}
    ~Repeat() {
        done_ = true;
        thread_.join();
    }
    Repeat(const Repeat &) = delete;
    Repeat &operator=(const Repeat &) = delete;

  private:
    std::atomic<bool> done_ = false;
    std::thread thread_;
};

} // namespace podlane::test
