// SPDX-License-Identifier: MIT
// Undoes what was done, last first, unless it is committed. An undo's failure is appended to the first error, and never
// replaces it.
#pragma once

#include "maps/map.hpp"
#include "maps/result.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

class Rollback {
  public:
    using Undo = std::function<Result<void>()>;

    void add(std::string what, Undo undo) { steps_.push_back({std::move(what), std::move(undo), false}); }
    // For a record of what is to be undone: it stays if anything after it could not be.
    void add_record(std::string what, Undo undo) { steps_.push_back({std::move(what), std::move(undo), true}); }
    // Something may be left that only a DEL or GC finds.
    void keep_records() { clean_ = false; }
    // Something that is released after all that is added later is undone, or at the commit.
    template <typename T> void keep(T held) {
        add({}, [held = std::make_shared<T>(std::move(held))]() -> Result<void> { return {}; });
    }
    void commit() { steps_.clear(); }

    // Runs all undos and returns `cause`, with what could not be undone at its end.
    [[nodiscard]] Error undo(Error cause) {
        for (; !steps_.empty(); steps_.pop_back()) {
            const Step &step = steps_.back();
            if (step.only_if_clean && !clean_)
                continue;
            if (auto undone = step.undo(); !undone) {
                clean_ = false;
                cause.message += "; and undoing \"" + step.what + "\": " + undone.error().message;
            }
        }
        return cause;
    }

  private:
    struct Step {
        std::string what;
        Undo undo;
        bool only_if_clean;
    };
    std::vector<Step> steps_;
    bool clean_ = true;
};

// Writes an entry that may be there already; rolled back, the table has what it had before.
template <typename Key, typename Value>
Result<void> put_over(Rollback &rollback, const std::string &what, const Map<Key, Value> &table, const Key &key,
                      const Value &value) {
    rollback.add(what, [&table, key, old = TRY(table.find(key))]() -> Result<void> {
        if (old)
            return table.update(key, *old);
        TRY(table.remove(key));
        return {};
    });
    return table.update(key, value);
}

} // namespace podlane
