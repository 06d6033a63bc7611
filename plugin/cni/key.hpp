// SPDX-License-Identifier: MIT
// The keys of a network configuration, a row each: the parser, the hints for an unknown key and the tables in
// docs/CONFIGURATION.md are made from this list.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <span>
#include <string_view>

namespace podlane::cni {

struct Key {
    enum class Place {
        specification, // top level; runtimes and libraries of Go write these, so they are read in any case
        top,           // top level
        limits,        // top level or the object `bandwidth`
        log,           // the object `log`; the row's name is "log.KEY"
        unread,        // top level, accepted because others put it there
        foreign,       // top level, of other main plugins; accepted with a warning, `meaning` says why it has no effect
    };
    // `value` is that of the key in the configuration `root`, or none.
    using Read = Result<void> (*)(const json::Node &root, const json::Node &value, Config &into);

    std::string_view name;
    Place place;
    std::string_view values;   // what it takes, in Markdown
    std::string_view fallback; // the default: a JSON value, or words
    std::string_view meaning;  // in Markdown
    Read read;                 // null: nothing reads it, or the reader of another row, which the table names
};

// In the order in which they are read.
[[nodiscard]] std::span<const Key> keys();

} // namespace podlane::cni
