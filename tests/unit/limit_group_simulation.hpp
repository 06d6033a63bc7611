// SPDX-License-Identifier: MIT
// A simulation of pods that share a limit, for the tests of its arithmetic.
#pragma once

#include "maps/abi/limit_group.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace podlane {

inline constexpr std::uint64_t kMs = NS_PER_MS;
inline constexpr std::uint64_t kMbit = 1000000;
inline constexpr std::uint64_t kAll = ~0ULL;

// Pods that send full frames, as fast as their limits let them or at a rate of their own, and report to their group.
class Group {
  public:
    explicit Group(std::uint64_t rate) { make_limit(&limit_, rate, AUTO_BURST_BITS); }

    std::size_t add(std::uint64_t guarantee) {
        Pod &pod = pods_.emplace_back();
        pod.state.group = LIMIT_GROUP | 1;
        pod.state.given_bits_per_s = guarantee;
        pod.state.given_burst_bits = AUTO_BURST_BITS;
        make_limit(&pod.state.limit, guarantee, AUTO_BURST_BITS);
        return pods_.size() - 1;
    }
    // Bits per second; kAll: as much as it can.
    void want(std::size_t pod, std::uint64_t rate) {
        pods_[pod].wanted = rate;
        pods_[pod].next_ns = now_;
    }
    // As much as it can, paced, and so many frames at a time.
    void want_in_bursts(std::size_t pod, std::uint64_t frames) {
        want(pod, kAll);
        pods_[pod].burst = frames;
    }
    // So many bytes at once, in frames; some may be dropped.
    void send_at_once(std::size_t pod, std::uint64_t bytes) {
        for (std::uint64_t sent = 0; sent < bytes; sent += FRAME_BITS / 8)
            offer(pods_[pod], FRAME_BITS / 8);
    }
    void send_packet(std::size_t pod, std::uint64_t bytes) { offer(pods_[pod], bytes); }
    void run(std::uint64_t time) {
        for (const std::uint64_t end = now_ + time; now_ < end; now_ += kMs / 10)
            for (Pod &pod : pods_)
                send(pod);
    }
    [[nodiscard]] std::uint64_t sent() const {
        std::uint64_t bytes = 0;
        for (const Pod &pod : pods_)
            bytes += pod.state.bytes;
        return bytes;
    }
    // Bits per second that each sends in the time.
    std::vector<double> rates(std::uint64_t time) {
        std::vector<double> sent;
        for (const Pod &pod : pods_)
            sent.push_back(-static_cast<double>(pod.state.bytes));
        run(time);
        for (std::size_t i = 0; i < pods_.size(); ++i)
            sent[i] = (sent[i] + static_cast<double>(pods_[i].state.bytes)) * 8e9 / static_cast<double>(time);
        return sent;
    }
    [[nodiscard]] const limit_state &state() const { return group_; }
    [[nodiscard]] std::uint64_t rate_of(std::size_t pod) const { return pods_[pod].state.limit.rate_bits_per_s; }

  private:
    struct Pod {
        limit_state state{};
        std::uint64_t wanted = 0, next_ns = 0;
        std::uint64_t burst = 0, rate = 1000000; // frames, and bits per second
    };

    void send(Pod &pod) {
        if (pod.burst != 0)
            return send_burst(pod);
        while (pod.wanted != 0 && pod.next_ns <= now_ && offer(pod, FRAME_BITS / 8))
            pod.next_ns += pod.wanted == kAll ? 0 : time_of(FRAME_BITS, pod.wanted);
    }
    // False if it is dropped.
    bool offer(Pod &pod, std::uint64_t bytes) {
        report(pod);
        if (backlog_of(pod.state.free_at_ns, &pod.state.limit, now_) > pod.state.limit.horizon_ns)
            return false;
        charge(&pod.state, &pod.state.limit, bytes, now_, false, true);
        return true;
    }
    void send_burst(Pod &pod) {
        if (pod.wanted == 0 || pod.next_ns > now_)
            return;
        report(pod);
        charge(&pod.state, &pod.state.limit, pod.burst * FRAME_BITS / 8, now_, false, false);
        // As announced with the acknowledgment of what was sent before.
        pod.next_ns = now_ + time_of(pod.burst * FRAME_BITS, pod.rate);
        sender what{};
        what.burst = pod.burst * FRAME_BITS / 8;
        what.is_backlogged = true;
        flow_share flow{};
        flow.rate = static_cast<std::uint32_t>(pod.rate / 8);
        pod.rate = pod.state.limit.rate_bits_per_s;
        pod.state.pause_us = static_cast<std::uint32_t>(pause_of(&flow, pod.rate / 8, &what) / 1000);
    }
    // As report_to_group() in bpf/limit_group.h.
    void report(Pod &pod) {
        group_report one{};
        one.now = now_;
        expire_flows(&group_, now_);
        if (!begin_report(&pod.state, &one))
            return;
        answer_report(&group_, &limit_, &one);
        end_report(&pod.state, &one, burst_horizon(one.guarantee, pod.state.given_burst_bits));
    }

    limit limit_{};
    limit_state group_{};
    std::uint64_t now_ = NS_PER_S;
    std::deque<Pod> pods_;
};

} // namespace podlane
