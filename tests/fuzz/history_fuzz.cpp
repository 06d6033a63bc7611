// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the reader of recorded calls: whoever may write the map may write anything.
#include "maps/tables.hpp"
#include "maps/history.hpp"

#include "tests/fuzz/require.hpp"
#include "tools/output/words.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using namespace podlane;
    auto copy = std::make_unique<history>();
    operation &first = copy->last[0];
    std::memcpy(&first, data, std::min(size, sizeof first));
    first.checksum = checksum_of(first);
    copy->last[1] = first;
    copy->last[1].number += 1;
    const std::size_t read = std::min(size, sizeof first);
    std::memcpy(&copy->totals, data + read, std::min(size - read, sizeof copy->totals));
    const History all(std::move(copy));
    for (const operation &one : all.operations()) {
        require(one.number != 0);
        require(field_text(one.message).size() <= sizeof one.message);
        require(field_text(one.pod_name).size() <= sizeof one.pod_name);
        require(!output::utc_words(one.started_ns).empty());
        require(!output::age_words(one.started_ns, one.duration_ns).empty());
        require(!output::short_duration_words(one.duration_ns).empty());
    }
    require(all.operations().size() <= 2);
    return 0;
}
