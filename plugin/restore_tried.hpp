// SPDX-License-Identifier: MIT
// How often calls try to restore what one before could not (plugin/restore.hpp).
#pragma once

#include "loader/record.hpp"

#include <cstdint>

namespace podlane {

// A failure may last for ever, and each try reads all records: ADD and DEL pause. Other pins are another matter.
bool was_just_tried(const AttachmentRecords &records, std::uint64_t generation);

// The next call's is the second try, which the first failure may not concern. On a file system that cannot be written,
// each call tries.
void note_tried(const AttachmentRecords &records, std::uint64_t generation);

} // namespace podlane
