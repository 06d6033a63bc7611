// SPDX-License-Identifier: MIT
#include "plugin/restore_tried.hpp"

#include "loader/state_file.hpp"
#include "maps/clock.hpp"

#include <sys/stat.h>

#include <string>

namespace podlane {
namespace {

constexpr const char *kTriedFile = ".tried"; // beside the records: the pins' generation; its time is that of the try

} // namespace

bool was_just_tried(const AttachmentRecords &records, std::uint64_t generation) {
    constexpr std::uint64_t kPause = 60 * kNsPerSecond;
    const std::string path = records.directory() + "/" + kTriedFile;
    const auto tried = read_state_file(path);
    struct stat facts {};
    if (!tried || *tried != std::to_string(generation) || stat(path.c_str(), &facts) != 0)
        return false;
    const std::uint64_t since = static_cast<std::uint64_t>(facts.st_mtim.tv_sec) * kNsPerSecond, now = realtime_ns();
    return since <= now && now < since + kPause;
}

void note_tried(const AttachmentRecords &records, std::uint64_t generation) {
    const std::string now = std::to_string(generation), once = now + " once";
    const auto before = read_state_file(records.directory() + "/" + kTriedFile);
    const bool is_again = before && (*before == now || *before == once);
    static_cast<void>(replace_file(records.directory(), kTriedFile, is_again ? now : once));
}

} // namespace podlane
