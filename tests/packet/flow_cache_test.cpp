// SPDX-License-Identifier: MIT
// The flow cache: entries that conntrack confirmed lead to the fast path while they are fresh and of their own flow.
#include "tests/packet/cases.hpp"

#include "maps/clock.hpp"

namespace podlane::packet {
namespace {

constexpr std::uint64_t kSecond = 1000000000;

// Two pods whose first packets take the slow path, and an entry of each direction of a connection between them.
class FlowCache : public PacketTest {
  protected:
    void SetUp() override {
        PacketTest::SetUp();
        if (IsSkipped())
            return;
        if (!require(programs_query_conntrack(node().root())))
            GTEST_SKIP() << "this kernel's programs cannot query conntrack";
        for (Pod *pod : {&node().pod, &node().peer}) {
            pod->flags &= ~std::uint32_t{INTERFACE_FIRST_DIRECT};
            node().put(*pod);
        }
        flows_.emplace(require(open_flows(node().root(), Access::read_write)));
        key_ = {pod4(), peer4(), htons(40000), htons(80), IPPROTO_TCP, {}};
        reverse_ = {peer4(), pod4(), htons(80), htons(40000), IPPROTO_TCP, {}};
        for (const flow_key &key : {key_, reverse_})
            require(flows_->update(key, entry_of(key)));
    }
    static flow entry_of(const flow_key &key) {
        flow entry{};
        entry.confirmed_ns = entry.since_ns = monotonic_ns();
        entry.source = key.source;
        entry.destination = key.destination;
        entry.source_port = key.source_port;
        entry.destination_port = key.destination_port;
        entry.check = flow_check(&key);
        return entry;
    }
    void expect_ack(reason why) {
        expect_ends_in(node(), node().run(from_pod() / to_peer4() / Tcp{.flags = kAck}), why);
    }
    [[nodiscard]] std::size_t entries() const { return require(flows_->keys()).size(); }

    std::optional<Flows> flows_;
    flow_key key_{};
    flow_key reverse_{};
};

TEST_F(FlowCache, AFreshEntryIsFollowed) {
    const Bytes sent = from_pod() / to_peer4() / Tcp{.flags = kAck};
    require(flows_->update(key_, entry_of(key_)));
    EXPECT_EQ(node().run_uncounted(sent).verdict, kRedirected);
}

// An LRU hash may reuse an entry for another flow while a program reads it.
TEST_F(FlowCache, AnEntryOfAnotherFlowIsNotFollowed) {
    flow entry = entry_of(key_);
    entry.check = flow_check(&reverse_) + 1;
    require(flows_->update(key_, entry));
    expect_ack(REASON_HOST_UNCONFIRMED);
}

// Conntrack does not know it any more.
TEST_F(FlowCache, AnEntryThatIsOldIsConfirmedOrDeleted) {
    flow entry = entry_of(key_);
    entry.confirmed_ns -= 2 * kSecond;
    require(flows_->update(key_, entry));
    expect_ack(REASON_HOST_UNCONFIRMED);
    EXPECT_FALSE(require(flows_->find(key_)));
    EXPECT_EQ(entries(), 1U);
}

TEST_F(FlowCache, TheEndOfAConnectionDeletesBothDirections) {
    constexpr std::uint8_t kFin = 0x01;
    expect_ends_in(node(), node().run(from_pod() / to_peer4() / Tcp{.flags = kFin | kAck}), REASON_HOST_PATH);
    EXPECT_EQ(entries(), 0U);
}

} // namespace
} // namespace podlane::packet
