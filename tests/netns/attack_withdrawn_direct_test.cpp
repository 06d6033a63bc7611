// SPDX-License-Identifier: MIT
// Connections that take the fast path without conntrack's word follow the node's routes as well: those between pods
// with "firstPacket": "direct", and those by the uplink of the pod's own network.
#include "tests/netns/withdrawn.hpp"

namespace podlane::test {
namespace {

class AttackWithdrawnDirect : public Withdrawn {};
class AttackWithdrawnUplink : public Withdrawn {};

TEST_P(AttackWithdrawnDirect, ConnectionsBetweenPodsEnd) {
    const Json keys = {{"firstPacket", "direct"}};
    add_receivers({Change::blackhole, Change::prohibited, Change::from_sender, Change::link_down}, keys);
    add_sending_pod(keys);
    ASSERT_NO_FATAL_FAILURE(connect_all());
    expect_changes_to_hold();
}

TEST_P(AttackWithdrawnUplink, ConnectionsByTheUplinkOfTheNetworkEnd) {
    add_receivers({Change::blackhole, Change::prohibited, Change::link_down},
                  {{"uplink", "up0"}, {"gateway", {Lab::kOutside4, Lab::kOutside6}}});
    add_sending_host();
    ASSERT_NO_FATAL_FAILURE(connect_all());
    expect_changes_to_hold();
}

INSTANTIATE_TEST_SUITE_P(All, AttackWithdrawnDirect, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, AttackWithdrawnUplink,
                         testing::Values(LabParameter{"tcx", false}, LabParameter{"clsact", true}), lab_parameter_name);

} // namespace
} // namespace podlane::test
