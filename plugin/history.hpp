// SPDX-License-Identifier: MIT
// Keeps the steps of this call and their times in the map of history, for podlanectl.
#pragma once

#include "maps/abi/history.h"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <string>

namespace podlane {

// While it lives, time counts to its step; an inner one takes over for as long as it lives. At level debug its end is
// logged with the time that it took, inner ones included.
class [[nodiscard]] Step {
  public:
    explicit Step(operation_step step);
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;
    Step(Step &&) = delete;
    Step &operator=(Step &&) = delete;
    ~Step();

  private:
    operation_step outer_;
    std::uint64_t began_ns_ = 0;
};

// Writes the call down, with its steps so far. If there is no history nothing is written, and nothing reported.
void record_operation(const cni::Request &request, const Result<std::string> &outcome);

} // namespace podlane
