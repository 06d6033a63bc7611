// SPDX-License-Identifier: MIT
#include "maps/history.hpp"

#include "maps/tables.hpp"
#include "maps/hash.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

namespace podlane {
namespace {

void add(__u64 &to, std::uint64_t amount) { std::atomic_ref<__u64>(to).fetch_add(amount, std::memory_order_relaxed); }

std::size_t bucket_of(std::uint64_t duration_ns) {
    constexpr std::uint64_t kNsPerUs = 1000;
    const auto *bound = std::ranges::find_if(
        kOperationBoundsUs, [&](std::uint32_t one) { return duration_ns <= std::uint64_t{one} * kNsPerUs; });
    return static_cast<std::size_t>(bound - kOperationBoundsUs.begin());
}

} // namespace

std::uint32_t checksum_of(operation record) {
    record.checksum = 0;
    return fnv1a_32({reinterpret_cast<const char *>(&record), sizeof record});
}

const std::array<StepText, STEP_COUNT> kSteps = {{
#define X(name, text, sentence) {text, sentence},
    PODLANE_STEPS(X)
#undef X
}};

Result<HistoryWriter> HistoryWriter::open(std::string_view root) {
    const std::string path = pin_path(root, PODLANE_MAP_HISTORY);
    const Fd map = TRY(detail::open_map(path, sizeof(std::uint32_t), sizeof(history), Access::read_write));
    void *memory = mmap(nullptr, sizeof(history), PROT_READ | PROT_WRITE, MAP_SHARED, map.get(), 0);
    if (memory == MAP_FAILED)
        return system_error(ErrorCode::bpf, "mapping " + path, errno);
    return HistoryWriter(static_cast<history *>(memory));
}

HistoryWriter::~HistoryWriter() {
    if (memory_ != nullptr)
        munmap(memory_, sizeof *memory_);
}

void HistoryWriter::append(const operation &done) {
    operation_totals &totals = memory_->totals[done.verb][done.error_code == 0 ? 0 : 1];
    add(totals.duration_ns, done.duration_ns);
    add(totals.buckets[bucket_of(done.duration_ns)], 1);
    operation whole = done;
    whole.number = std::atomic_ref<__u64>(memory_->count).fetch_add(1) + 1;
    whole.checksum = checksum_of(whole);
    operation &slot = memory_->last[(whole.number - 1) % HISTORY_OPERATIONS];
    std::memcpy(&slot, &whole, sizeof whole);
}

Result<History> History::read(std::string_view root) {
    const std::string path = pin_path(root, PODLANE_MAP_HISTORY);
    const Fd map = TRY(detail::open_map(path, sizeof(std::uint32_t), sizeof(history), Access::read_only));
    auto copy = std::make_unique<history>();
    const std::uint32_t only = 0;
    TRY(detail::find(map.get(), path, &only, copy.get()));
    return History(std::move(copy));
}

std::vector<operation> History::newest(std::size_t count) const {
    std::vector<operation> all;
    for (std::uint64_t number = copy_->count; number != 0 && count != 0; --number, --count) {
        const operation &one = copy_->last[(number - 1) % HISTORY_OPERATIONS]; // NOLINT(*-constant-array-index)
        if (one.number == number && checksum_of(one) == one.checksum)
            all.push_back(one);
    }
    return all;
}

std::vector<operation> History::operations() const {
    std::vector<operation> all;
    for (const operation &one : copy_->last)
        if (one.number != 0 && checksum_of(one) == one.checksum)
            all.push_back(one);
    std::ranges::sort(all, std::ranges::greater{}, &operation::number);
    return all;
}

} // namespace podlane
