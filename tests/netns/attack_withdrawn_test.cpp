// SPDX-License-Identifier: MIT
// The fast path follows the node's routes: packets of a connection that it carries already reach a pod no longer than a
// second after the host stack forwards them to it no more. They return to the fast path with the route.
#include "tests/netns/withdrawn.hpp"

namespace podlane::test {
namespace {

class AttackWithdrawn : public Withdrawn {
  protected:
    void expect_changes_to_hold(const Json &keys) {
        add_receivers({Change::blackhole, Change::prohibited, Change::from_sender, Change::link_down}, keys);
        add_sending_pod(keys);
        add_sending_host();
        ASSERT_NO_FATAL_FAILURE(connect_all());
        Withdrawn::expect_changes_to_hold();
    }
};

TEST_P(AttackWithdrawn, ConnectionsOnTheFastPathEnd) { expect_changes_to_hold({{"firstPacket", "host"}}); }

class WithdrawnHost : public AttackWithdrawn {};

// The test's own foundation.
TEST_P(WithdrawnHost, ConnectionsOfTheHostStackEnd) {
    is_fast_ = false;
    expect_changes_to_hold({{"fastPath", "off"}});
}

INSTANTIATE_TEST_SUITE_P(All, AttackWithdrawn, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, WithdrawnHost, testing::Values(LabParameter{"clsact", true}, LabParameter{"tcx", false}),
                         lab_parameter_name);

} // namespace
} // namespace podlane::test
