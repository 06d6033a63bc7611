// SPDX-License-Identifier: MIT
// The findings of passes over the node, and which of them count: meanwhile ADDs and DELs go on, and system calls fail.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace podlane::ctl::doctor {

struct Row {
    const Check *check;
    Finding finding;
    std::string pod{}; // empty: of the node
    std::string host_interface{};
    std::string fixed{}; // "yes", or why not; empty if not tried

    [[nodiscard]] bool is_wrong() const { return check->severity == Severity::wrong; }
    [[nodiscard]] bool is_fixed() const { return fixed == "yes"; }
    [[nodiscard]] bool has_failed() const { return !fixed.empty() && !is_fixed(); } // its repair
    [[nodiscard]] std::string remedy() const;
};

struct Examined {
    std::size_t checks = 0;
    std::vector<Row> rows{};
    bool is_partial = false; // there are pins, and they could not be read: nothing that goes by them was examined
};

// The number behind the colon ("map ... is nearly full: 950 of 1000") may be another one, and so may be the reason why
// something cannot be checked.
bool is_same(const Row &a, const Row &b);

// Whether these findings could not have the row, because a check failed.
bool hides(const Examined &examined, const Row &row);

// Adds what was found after repairs. A finding that is not found again is fixed, by its own repair or by another one;
// not if a check failed that would have found it, nor if its repair failed and the check has another finding of the
// endpoint in its place.
void merge(std::vector<Row> &before, Examined now);

// Looks until each wrong row is found twice, or another pass looked and did not find it: for a moment each ADD and DEL
// leaves the node in a state that none is to stay in. A pass that could not see where the row is says nothing about it;
// after four passes it counts. Without a wrong row the first pass is enough.
Result<Examined> examine_in_passes(const std::function<Result<Examined>(bool only_settled)> &look);

} // namespace podlane::ctl::doctor
