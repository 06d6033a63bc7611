// SPDX-License-Identifier: MIT
// Removing an endpoint's map entries when deletions fail.
#include "tests/packet/run.hpp"

#include <gmock/gmock.h>

namespace podlane::packet {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using RemoveEndpoint = PacketTest;

// The kernel refuses a deletion through a descriptor that may only read.
TEST_F(RemoveEndpoint, ReportsTheFirstFailedMapAndAppendsTheOthers) {
    const Tables read_only = require(Tables::open(node().root(), Access::read_only));
    const endpoint_key key = require(make_endpoint_key(node().pod.name, "eth0"));
    const endpoint record = require(read_only.endpoints.find(key)).value();

    const Result<void> removed = erase_endpoint(read_only, record);

    ASSERT_FALSE(removed);
    EXPECT_THAT(removed.error().message,
                StartsWith("deleting from map " + pin_path(node().root(), PODLANE_MAP_ADDRESSES)));
    EXPECT_THAT(removed.error().message, HasSubstr(PODLANE_MAP_INTERFACES));
}

} // namespace
} // namespace podlane::packet
