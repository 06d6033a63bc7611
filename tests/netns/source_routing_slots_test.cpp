// SPDX-License-Identifier: MIT
// The slots of a container with three interfaces: CHECK, doctor and repair compare all of them with the plan.
#include "maps/entries.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

class SourceRoutingSlots : public testing::Test {
  protected:
    SourceRoutingSlots() {
        for (int number = 0; number < SourceLab::kProviders; ++number)
            lab_.add(pod_, kNames.at(static_cast<std::size_t>(number)), number);
        table_ = require(open_source_slots(node().bpffs(), Access::read_write));
        whole_ = slots();
    }
    using Slots = std::map<std::string, std::uint32_t>; // whose address is in which slot
    [[nodiscard]] Slots slots() const {
        Slots all;
        for (const auto &[key, route] : require(table_->entries()))
            all[std::to_string(key.ifindex) + (key.is_ipv4 != 0 ? " v4 " : " v6 ") + std::to_string(key.number) + " " +
                to_string(route.source)] = route.ifindex;
        return all;
    }
    // Found by each of the three, and not there any more after a repair.
    void expect_repaired(const std::string &ifname) {
        const Reply checked = lab_.check(pod_, ifname);
        EXPECT_EQ(checked.code(), 105) << checked;
        EXPECT_THAT(checked.message(), HasSubstr(PODLANE_MAP_SOURCE_SLOTS));
        EXPECT_THAT(node().podlanectl("doctor").out, HasSubstr(checked.message()));
        EXPECT_THAT(node().podlanectl("repair").out, HasSubstr(checked.message()));
        EXPECT_EQ(slots(), whole_);
        for (const char *one : kNames)
            EXPECT_EQ(lab_.check(pod_, one).rc, 0) << lab_.check(pod_, one);
        EXPECT_THAT(node().podlanectl("doctor").out, Not(HasSubstr(PODLANE_MAP_SOURCE_SLOTS)));
    }
    [[nodiscard]] const Node &node() const { return lab_.node(); }

    static constexpr std::array<const char *, SourceLab::kProviders> kNames = {"eth0", "net1", "net2"};
    SourceLab lab_;
    std::shared_ptr<Container> pod_ = lab_.node().container();
    std::optional<SourceSlots> table_{};
    Slots whole_{};
};

TEST_F(SourceRoutingSlots, ThatAreMissingAreFoundAndRestored) {
    ASSERT_EQ(whole_.size(), 12U) << "of two addresses of each family, at three host-side veths";
    for (const auto &[key, route] : require(table_->entries()))
        for (const char *ifname : kNames)
            if (SourceLab::host_veth(*pod_, ifname) == key.ifindex) {
                SCOPED_TRACE(std::string(ifname) + " " + std::to_string(key.number));
                ASSERT_TRUE(require(table_->remove(key)));
                expect_repaired(ifname);
            }
}

// All of an entry counts: by which uplink and from which MAC a packet leaves that is sent again.
TEST_F(SourceRoutingSlots, ThatAreChangedAreFoundAndRestored) {
    const auto all = require(table_->entries());
    const auto &[key, whole] = all.at(0);
    for (const auto change :
         {+[](source_route &route) { route.uplink ^= 0x41; },
          +[](source_route &route) { route.gateway = route.source; },
          +[](source_route &route) { route.host_mac[5] ^= 0x41; }, +[](source_route &route) { route.mtu ^= 0x41; }}) {
        source_route changed = whole;
        change(changed);
        require(table_->update(key, changed));
        for (const char *ifname : kNames)
            if (SourceLab::host_veth(*pod_, ifname) == key.ifindex)
                expect_repaired(ifname);
        const auto now = require(table_->find(key));
        EXPECT_TRUE(now && same_bytes(*now, whole));
    }
}

// Behind the others: of an interface that is gone, or of one that has its slot already.
TEST_F(SourceRoutingSlots, ThatACallHasLeftAreFoundAndRemoved) {
    const std::uint32_t eth0 = SourceLab::host_veth(*pod_, "eth0");
    source_route gone{};
    gone.ifindex = 424242;
    gone.source = ip("198.18.9.9");
    const auto again = require(table_->find({eth0, 1, 2}));
    ASSERT_TRUE(again);
    for (const source_route &left : {gone, *again})
        for (const std::uint32_t number : {3U, 5U, std::uint32_t{SOURCE_SLOTS}}) {
            SCOPED_TRACE(to_string(left.source) + " " + std::to_string(number));
            require(table_->update({eth0, 1, number}, left));
            expect_repaired("eth0");
        }
}

} // namespace
} // namespace podlane::test
