// SPDX-License-Identifier: MIT
// Findings of podlanectl doctor in the records on disk.
#pragma once

#include "tests/netns/doctor.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace podlane::test {

const std::vector<Fault> kRecordFaults = {
    {"StateDirectoryOpenToOthers", "state-directory", "/var/lib/podlane of records has mode 0755", true,
     [](Doctor &) { ASSERT_EQ(chmod(kStateDirectory, 0755), 0); }},
    {"RecordsOfAnotherUser", "state-directory", "has mode 0700 and belongs to user 65534", true,
     [](Doctor &d) {
         ASSERT_EQ(chown(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory().c_str(), 65534, 0), 0);
     }},
};

} // namespace podlane::test
