// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what reads frames: the text of `podlanectl explain --frame`, and packets that `monitor` shows.
#include "tools/podlanectl/views/frame.hpp"

#include "tests/fuzz/require.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace podlane;

// Whatever the bytes are, there are words for them.
void check_frame(std::span<const std::uint8_t> frame) { require(!ctl::frame_words(ctl::read_frame(frame)).empty()); }

// A frame that is built from what was read says the same again.
void check_building(const ctl::FrameFacts &facts) {
    const auto frame = ctl::build_frame({.source = facts.source,
                                         .destination = facts.destination,
                                         .protocol = facts.protocol,
                                         .source_port = facts.source_port,
                                         .destination_port = facts.destination_port});
    if (frame)
        require(ctl::read_frame(*frame).is_ip);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    check_frame({data, size});
    check_building(ctl::read_frame({data, size}));
    if (const auto frame = ctl::frame_from_hex({reinterpret_cast<const char *>(data), size})) {
        require(frame->size() <= size / 2);
        check_frame(*frame);
    }
    return 0;
}
