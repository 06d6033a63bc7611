// SPDX-License-Identifier: MIT
// Rollback steps, which run in reverse order unless they are committed. The failure of a step is appended to the first
// error, and never replaces it.
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
    using Action = std::function<Result<void>()>;

    void add(std::string what, Action action) { steps_.push_back({std::move(what), std::move(action), false}); }
    // For a record of what is to be removed: it stays if a step that was added later fails.
    void add_record(std::string what, Action action) { steps_.push_back({std::move(what), std::move(action), true}); }
    // Something may be left that only a DEL or GC finds.
    void keep_records() { clean_ = false; }
    // Something that is released after all steps that are added later, or at the commit.
    template <typename T> void keep(T held) {
        add({}, [held = std::make_shared<T>(std::move(held))]() -> Result<void> { return {}; });
    }
    void commit() { steps_.clear(); }

    // Runs all steps and returns `cause`, with the failures of steps at its end.
    [[nodiscard]] Error run(Error cause) {
        for (; !steps_.empty(); steps_.pop_back()) {
            const Step &step = steps_.back();
            if (step.only_if_clean && !clean_)
                continue;
            if (auto done = step.action(); !done) {
                clean_ = false;
                cause.message += "; and rolling back \"" + step.what + "\": " + done.error().message;
            }
        }
        return cause;
    }

  private:
    struct Step {
        std::string what;
        Action action;
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
