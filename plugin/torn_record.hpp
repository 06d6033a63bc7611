// SPDX-License-Identifier: MIT
// Records on disk that a power cut tore from the beginning. Of such an attachment the file's name is left, and perhaps
// its lease: neither its network nor its IPAM plugin is known.
#pragma once

#include "loader/record.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

struct TornRecords {
    std::vector<AttachmentRecord> records{}; // neither the maps nor an interface know the attachment
    std::vector<cni::Request> networks{};    // calls of the IPAM plugins that may have their leases
    std::string hanging{};                   // what one of these that is called no more has answered

    // Of no one container. One that is there already is not called twice.
    void add_network(cni::Request network);
};

// Of one root of pins, with the newest configuration of each network that has a whole record there. None if the pins
// are another network namespace's.
Result<TornRecords> find_torn_records(const std::string &state_directory, const std::string &root);

// Has all of these IPAM plugins release the lease, and removes the file, which is its only trace. Otherwise why that
// stays: one is not installed or hangs, none has answered for the container, or an ADD has come since. A CNI error says
// of a plugin that it has no lease of the container.
Result<std::optional<std::string>> release_torn_record(const AttachmentRecord &torn, TornRecords &all);

} // namespace podlane
