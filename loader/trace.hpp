// SPDX-License-Identifier: MIT
// Runs a copy of a program (bpf/traced.bpf.c) over a packet of explain: nothing is sent, written or counted, and each
// lookup and its result is reported.
#pragma once

#include "maps/abi/event.h"
#include "maps/fd.hpp"
#include "maps/map.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace podlane {

struct TracedStep {
    step head{};
    Bytes key{};
    Bytes value{}; // empty if there is no entry
};
struct TracedRun {
    std::vector<TracedStep> steps{};
    int verdict = 0; // TC_ACT_*, or -1: the next program's turn
    Bytes frame{};   // as the program leaves it
};

class Tracer {
  public:
    // Loads the copy of PODLANE_PROGRAM_* on the pinned maps. An error if those, or the pinned program, are not of this
    // build: its answers would not be theirs.
    static Result<Tracer> load(const std::string &root, const char *program);
    // Of the pinned program: that on a hook has the same one, if it is the same program.
    [[nodiscard]] const std::string &tag() const { return tag_; }
    // As if the frame had met the program on this interface of the caller's network namespace. `came_by`: as what one
    // of our programs had redirected there; if it matters on which interface (0: it does not), the kernel must be 5.17.
    [[nodiscard]] Result<TracedRun> run(std::uint32_t ifindex, const Bytes &frame,
                                        std::optional<std::uint32_t> came_by = {}) const;

  private:
    Tracer(Fd program, Fd events, std::string tag, std::uint32_t mark)
        : program_(std::move(program)), events_(std::move(events)), tag_(std::move(tag)), mark_(mark) {}
    Fd program_;
    Fd events_;
    std::string tag_;
    std::uint32_t mark_;
};

} // namespace podlane
