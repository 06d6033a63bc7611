// SPDX-License-Identifier: MIT
// The flow cache's key of a frame.
#pragma once

#include "maps/abi/flow.h"
#include "tests/harness/frame.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace podlane::packet {

using frames::Bytes;

// Of a packet without IPv4 options and extension headers.
inline flow_key key_of(const Bytes &frame) {
    constexpr std::size_t kEthernet = 14;
    const bool v4 = frame.at(12) == 0x08;
    const std::size_t transport = kEthernet + (v4 ? 20 : 40);
    flow_key key{};
    if (v4) {
        key.source.word[2] = key.destination.word[2] = htonl(0x0000ffff);
        std::memcpy(&key.source.word[3], &frame.at(kEthernet + 12), 4);
        std::memcpy(&key.destination.word[3], &frame.at(kEthernet + 16), 4);
    } else {
        std::memcpy(&key.source, &frame.at(kEthernet + 8), sizeof key.source);
        std::memcpy(&key.destination, &frame.at(kEthernet + 24), sizeof key.destination);
    }
    key.protocol = frame.at(kEthernet + (v4 ? 9 : 6));
    std::memcpy(&key.source_port, &frame.at(transport), sizeof key.source_port);
    std::memcpy(&key.destination_port, &frame.at(transport + 2), sizeof key.destination_port);
    return key;
}

} // namespace podlane::packet
