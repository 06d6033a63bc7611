// SPDX-License-Identifier: MIT
// The model with earliest departure times: which packets go by the qdisc of the receiver, when they leave it, and that
// each is charged there alone.
#include "tests/packet/limited_model.hpp"

namespace podlane::packet {
namespace {

// Both pods have the qdisc. Their buckets are ahead of the clock by turns, so that packets have to wait, and within the
// burst, so that none is dropped.
class EdtModel : public LimitedModel {
  protected:
    void prepare() override {
        more_flags_ = INTERFACE_LIMIT_EDT;
        by_qdisc_ = true;
        LimitedModel::prepare();
        states_.emplace(require(open_limit_states(node().root(), Access::read_write)));
    }
    [[nodiscard]] bool has_seen_all() const override { return acks_ > 0; }
    // How far the buckets are ahead, and whether all flows are under way.
    void change() override {
        constexpr std::uint64_t kMsIn = 1'000'000;
        const std::uint64_t ahead = std::array<std::uint64_t, 4>{0, 50, 90, 20}[changes_ % 4] * kMsIn;
        all_busy_ = changes_++ % 8 < 4;
        for (const Pod *pod : limited_) {
            limit_state now = state(*pod);
            now.free_at_ns = monotonic_ns() + ahead;
            now.small_free_at_ns = now.remainder = 0;
            std::ranges::fill(now.departures, all_busy_ ? now.free_at_ns + 500 * kMsIn : 0);
            std::ranges::fill(now.parts, 0);
            require(states_->update({pod->ifindex, LIMIT_INGRESS}, now));
        }
    }
    limit_state state(const Pod &pod) { return require(limits_->find({pod.ifindex, LIMIT_INGRESS})).value(); }

    // The host-side veth's egress takes it from the fast path.
    std::string compare_more(const ModelSender &sender, const Bytes &frame, const How &how, const Model & /*model*/,
                             const Outcome &outcome) override {
        const auto is_to = [&](const Pod *pod) {
            return std::equal(pod->mac.begin(), pod->mac.end(), outcome.frame.begin());
        };
        const auto receiver = std::ranges::find_if(limited_, is_to);
        if (outcome.verdict != kRedirected || receiver == limited_.end() || *receiver == how_from(sender))
            return "";
        const bool is_v4 = frame[12] == 0x08, is_tcp = frame[is_v4 ? 23 : 20] == IPPROTO_TCP;
        // A sender's socket does not know the receiver whose address is written into what it sends.
        const auto destination = [&](const Bytes &of) {
            return std::span(of).subspan(is_v4 ? 30 : 38, is_v4 ? 4 : 16);
        };
        const bool knows_receiver = std::ranges::equal(destination(frame), destination(outcome.frame));
        const bool is_by_qdisc = (outcome.mark & PODLANE_MARK) != 0;
        if (is_by_qdisc != (!sender.is_pod || !is_tcp || !knows_receiver))
            return is_by_qdisc ? "a paced packet goes by the qdisc" : "what nobody paces does not go by the qdisc";
        return is_by_qdisc ? compare_departure(sender, how, outcome, **receiver) : "";
    }
    const Pod *how_from(const ModelSender &sender) { return sender.is_pod ? &pod_of(sender) : nullptr; }

    std::string compare_departure(const ModelSender &sender, const How &how, const Outcome &outcome, const Pod &to) {
        How there = how;
        there.program = PODLANE_PROGRAM_TO_POD;
        there.ifindex = to.ifindex;
        there.mark = outcome.mark;
        there.came_by = sender.is_pod ? pod_of(sender).ifindex : uplink_;
        Model forwarded(router_, outcome.frame, how.gso_size);
        static_cast<void>(forwarded.promise()); // reads the headers
        const limit_state before = state(to);
        const std::uint64_t begin = monotonic_ns();
        Outcome left;
        if (!node().try_run(outcome.frame, there, left))
            return "the kernel refuses what it has forwarded";
        const std::uint64_t end = monotonic_ns();
        if (left.verdict != kNext || !is_carried(outcome.frame, left.frame, left.departure_ns, begin, end) ||
            (left.mark & PODLANE_MARK) != 0)
            return "dropped, changed or still marked at the qdisc of " + to.name;
        const std::uint64_t bytes = charge(to, LIMIT_INGRESS, forwarded.limited_source(), forwarded);
        std::string problem = differing_charges([&](const Pod *pod, limit_direction direction) {
            return pod == &to && direction == LIMIT_INGRESS ? bytes : std::uint64_t{0};
        });
        if (!problem.empty())
            return "at the qdisc of " + to.name + ", " + problem;
        if (bytes == 0)
            return left.departure_ns == 0 && left.priority == 0 ? "" : "held although its sender is exempt";
        return compare_times(before, state(to), bytes, left, begin, end, forwarded.is_only_ack());
    }
    // Unchanged, but that a packet that is capable of ECN is marked if it waits for more than 2/5 of the burst.
    static bool is_carried(const Bytes &given, const Bytes &got, std::uint64_t leaves, std::uint64_t begin,
                           std::uint64_t end) {
        constexpr std::uint64_t kMarked = 40'000'000;
        const bool v4 = given[12] == 0x08;
        const unsigned shift = v4 ? 0 : 4, ecn = given[15] >> shift & 3U;
        if (got == given)
            return ecn == 0 || ecn == 3 || leaves <= end + kMarked;
        if (ecn == 0 || ecn == 3 || leaves <= begin + kMarked || got.size() != given.size())
            return false;
        Bytes expected = given;
        expected[15] |= static_cast<std::uint8_t>(3U << shift);
        const auto header = [](const Bytes &of) { return checksum(std::span(of).subspan(14, 20)); };
        if (v4 && header(given) != header(got))
            return false;
        if (v4)
            std::copy_n(got.begin() + 24, 2, expected.begin() + 24);
        return got == expected;
    }
    // A packet leaves when all before it have left at the rate, or now if its flow is small and has nothing under way;
    // and takes as long as its bytes do. An acknowledgement keeps nothing else from that.
    std::string compare_times(const limit_state &before, const limit_state &after, std::uint64_t bytes,
                              const Outcome &left, std::uint64_t begin, std::uint64_t end, bool is_ack) {
        constexpr std::uint64_t kFullFrame = 1514, kRate = 100'000'000'000;
        const std::uint64_t cost = bytes * 8 * 1'000'000'000 / kRate, at = left.departure_ns;
        const bool is_now = at >= begin && at <= end;
        const bool must_wait = before.free_at_ns > end;
        const bool has_waited = at == before.free_at_ns;
        if (is_ack && !std::ranges::equal(before.departures, after.departures))
            return "an acknowledgement makes its flow busy";
        if (must_wait && !has_waited && (!is_now || all_busy_ || bytes > kFullFrame))
            return "leaves " + std::to_string(static_cast<std::int64_t>(at - begin)) +
                   " ns after now, its turn is in " + std::to_string(before.free_at_ns - begin);
        if (before.free_at_ns <= begin && !is_now)
            return "waits behind nothing";
        if (left.priority != (must_wait && !has_waited ? 0 : LIMIT_CLASS) && (must_wait || before.free_at_ns <= begin))
            return "in another class of the qdisc: " + std::to_string(left.priority);
        const std::uint64_t least = std::max<std::uint64_t>(before.free_at_ns, begin) + cost;
        const std::uint64_t most = std::max<std::uint64_t>(before.free_at_ns, end) + cost + 1;
        if (after.free_at_ns < least || after.free_at_ns > most)
            return "the next packet leaves " + std::to_string(static_cast<std::int64_t>(after.free_at_ns - least)) +
                   " ns later than after " + std::to_string(cost);
        ++(has_waited ? waited_ : overtook_);
        acks_ += is_ack && must_wait && is_now ? 1 : 0;
        return "";
    }

    const ModelSender router_{};
    std::optional<LimitStates> states_;
    std::uint64_t waited_ = 0, overtook_ = 0, acks_ = 0;
    bool all_busy_ = false;
    unsigned changes_ = 0;
};

TEST_F(EdtModel, HoldsForGeneratedFrames) {
    hold_for_generated_frames(std::chrono::seconds(3), 1);
    std::cout << waited_ << " packets waited, " << overtook_ << " left at once, " << acks_
              << " of them acknowledgements" << std::endl;
    EXPECT_GT(waited_, ran_ / 400);
    EXPECT_GT(overtook_, ran_ / 500);
    EXPECT_GT(acks_, 0U);
}

} // namespace
} // namespace podlane::packet
