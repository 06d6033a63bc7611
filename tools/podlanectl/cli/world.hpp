// SPDX-License-Identifier: MIT
// The environment of a command (streams, clocks, pins), and its only output functions.
#pragma once

#include "maps/result.hpp"
#include "tools/output/table.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace podlane::ctl {

// The parts of tables.
using output::Align;
using output::Cell;
using output::Column;
using output::list_cell;
using output::number_cell;
using output::text_cell;
using output::Tone;

// Counters as they were last printed, for rates.
struct Before {
    std::uint64_t at_ns = 0; // CLOCK_MONOTONIC
    std::map<std::pair<std::uint32_t, std::size_t>, std::pair<std::uint64_t, std::uint64_t>> counted{};
};

struct World {
    std::FILE *out = stdout;
    std::FILE *err = stderr;
    output::Style style{};
    output::Style err_style{};
    std::string bpffs{};                                              // root of the pins
    std::function<Result<void>(const std::string &root)> may_write{}; // called before a verb that writes
    bool json = false;
    bool has_configured_state_dir = false; // --state-dir is that of the runtime's networks, not of the command line
    bool cleaned_rcu = false; // a killed call had left expedited RCU switched on for the kernel; it is off now
    std::uint64_t realtime_ns = 0;
    std::uint64_t monotonic_ns = 0;
    std::uint64_t boottime_ns = 0;
    Before before{}; // with --watch

    mutable int write_errno = 0; // of the first write to `out` that failed

    void print(std::string_view text) const {
        if (std::fwrite(text.data(), 1, text.size(), out) != text.size() && write_errno == 0)
            write_errno = errno;
    }
    // An error if anything printed so far is lost: after a write that failed, a later one may succeed.
    [[nodiscard]] Result<void> flush() const {
        if (std::fflush(out) != 0 && write_errno == 0)
            write_errno = errno;
        return write_errno == 0 ? Result<void>{}
                                : system_error(ErrorCode::io_failure, "writing to standard output", write_errno);
    }
    // The same table as text or JSON.
    void print(const output::Table &table) const {
        print(json ? output::json_text(output::table_value(table)) : output::table_text(table, style));
    }
    // With one field a line as text.
    void print_records(const output::Table &table) const {
        print(json ? output::json_text(output::table_value(table)) : output::record_text(table, style));
    }
};

void read_clocks(World &world);
// The process's own streams, clocks and PODLANE_BPFFS.
World real_world();

} // namespace podlane::ctl
