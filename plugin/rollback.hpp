// Undoes what was done, last first, unless it is committed. An undo's failure is told, and never replaces the first
// error.
#pragma once

#include "maps/map.hpp"
#include "maps/result.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

class Rollback {
  public:
    using Undo = std::function<Result<void>()>;

    void add(std::string what, Undo undo) { steps_.emplace_back(std::move(what), std::move(undo)); }
    void commit() { steps_.clear(); }

    // Runs all undos and returns `cause`, with what could not be undone at its end.
    [[nodiscard]] Error undo(Error cause) {
        for (; !steps_.empty(); steps_.pop_back())
            if (auto undone = steps_.back().second(); !undone)
                cause.message += "; and undoing \"" + steps_.back().first + "\": " + undone.error().message;
        return cause;
    }

  private:
    std::vector<std::pair<std::string, Undo>> steps_;
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
