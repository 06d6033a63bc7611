// SPDX-License-Identifier: MIT
// The plugin's last calls: written by many processes at once without a lock, read while they write.
#pragma once

#include "maps/abi/history.h"
#include "maps/map.hpp"
#include "maps/result.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace podlane {

inline constexpr std::array<std::uint32_t, OPERATION_BUCKETS - 1> kOperationBoundsUs = OPERATION_BOUNDS_US;

struct StepText {
    std::string_view name;
    std::string_view sentence;
};
extern const std::array<StepText, STEP_COUNT> kSteps; // by enum operation_step

// Of everything in the record but the checksum itself.
std::uint32_t checksum_of(operation record);

// The map's one entry, mapped into this process as long as the object lives: for writing.
class HistoryWriter {
  public:
    static Result<HistoryWriter> open(std::string_view root);
    HistoryWriter(HistoryWriter &&other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    HistoryWriter &operator=(HistoryWriter &&) = delete;
    HistoryWriter(const HistoryWriter &) = delete;
    HistoryWriter &operator=(const HistoryWriter &) = delete;
    ~HistoryWriter();

    // Numbers it, and writes it over the slot of the oldest one.
    void append(const operation &done);

  private:
    explicit HistoryWriter(history *memory) : memory_(memory) {}
    history *memory_;
};

// A copy of it: the kernel maps nothing for a descriptor that may only read.
class History {
  public:
    static Result<History> read(std::string_view root);
    explicit History(std::unique_ptr<history> copy) : copy_(std::move(copy)) {}
    // The calls whose checksum is right, the newest first.
    [[nodiscard]] std::vector<operation> operations() const;
    // Of the last `count` calls those that are whole, the newest first.
    [[nodiscard]] std::vector<operation> newest(std::size_t count) const;
    [[nodiscard]] const operation_totals &totals(operation_verb verb, bool failed) const {
        return copy_->totals[verb][failed ? 1 : 0];
    }

  private:
    std::unique_ptr<history> copy_;
};

} // namespace podlane
