// SPDX-License-Identifier: MIT
// A pin that is lost, and a podlanectl that fails or is killed at any of its system calls while it restores it: the pod
// is still connected, and the next call of the same command restores the pin.
#include "tests/netns/fault.hpp"

namespace podlane::test {
namespace {

constexpr std::size_t kSample = 3;

class FaultPinTest : public FaultTest {
  protected:
    [[nodiscard]] std::string address() const { return to_string(prefix(result_.at("ips").at(0).at("address")).addr); }
    void expect_restored_by(const std::string &command, const std::string &name) {
        const std::string pin = pin_path(node_.bpffs(), name);
        fs::remove(pin);
        for (const Fault &fault : faults_of(command, kSample)) {
            SCOPED_TRACE(command + " without " + name + ", " + fault.text());
            fs::remove(pin);
            (void)hit(command, fault);
            EXPECT_TRUE(ping(node_.ns(), address()));
            expect_done(command);
            EXPECT_TRUE(fs::exists(pin));
            EXPECT_TRUE(ping(node_.ns(), address()));
            expect_done("CHECK");
            expect_done("doctor");
        }
    }
};

// Without the entry of the pod's interface the programs would drop its packets.
TEST_P(FaultPinTest, OfAMapAndOfAProgramIsRestored) {
    must("ADD");
    for (const char *name : {PODLANE_MAP_INTERFACES, PODLANE_PROGRAM_FROM_POD})
        for (const char *command : {"upgrade", "repair"})
            expect_restored_by(command, name);
    expect_clean_after("DEL");
}

// Nothing has its entries any more: they are restored from the record, beside maps that are kept.
TEST_P(FaultPinTest, OfTheMapOfEndpointsIsRestored) {
    must("ADD");
    expect_restored_by("repair", PODLANE_MAP_ENDPOINTS);
    expect_clean_after("DEL");
}

INSTANTIATE_TEST_SUITE_P(Modes, FaultPinTest, testing::Values("main", "uplink"), fault_mode);

} // namespace
} // namespace podlane::test
