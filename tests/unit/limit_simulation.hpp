// SPDX-License-Identifier: MIT
// The control loop of a limit without a kernel: TCP-like flows, the arithmetic of maps/abi, and a clock that is a
// number.
#pragma once

#include "maps/abi/unpaced_flow.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace podlane::simulation {

constexpr std::uint64_t kMs = NS_PER_MS, kSecond = NS_PER_S;
constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max() / 4;
constexpr std::uint64_t kPayload = 1448, kFrame = 1514, kFirstWindow = 10;

struct Flow {
    std::uint64_t round_trip_ns = kMs / 10;
    std::uint64_t unsent = 0, acked = 0;                          // bytes
    std::uint64_t buffer = 4000000;                               // what the socket holds of them
    std::uint64_t window = kFirstWindow, in_flight = 0, sent = 0; // segments
    std::uint64_t burst = 2;                                      // segments it sends at a time
    std::uint64_t rate = 0, next_send_ns = 0, renewed_ns = 0;
    std::uint64_t began_ns = 0, done_ns = 0; // when the last byte was acknowledged
    bool is_waiting = false;                 // a sending is due
    flow_share share{};
};

class Simulation {
  public:
    // The first `bulk` flows send as much as they can, until they are stopped.
    explicit Simulation(std::uint64_t rate, std::size_t bulk = 0) {
        make_limit(&limit_, rate, AUTO_BURST_BITS);
        restart_share(&state_, &limit_, now_);
        while (flows_.size() < bulk)
            write(connect(), kForever);
    }

    // The index of a new connection.
    std::size_t connect(std::uint64_t round_trip_ns = kMs / 10) {
        Flow flow;
        flow.round_trip_ns = round_trip_ns;
        flow.began_ns = now_;
        flow.rate = state_.fair_bytes_per_s;
        flow.share.rate = static_cast<std::uint32_t>(flow.rate);
        flows_.push_back(flow);
        return flows_.size() - 1;
    }
    // As one whose window was made for a higher rate.
    void set_burst(std::size_t index, std::uint64_t segments) { flows_[index].burst = segments; }
    void set_buffer(std::size_t index, std::uint64_t bytes) { flows_[index].buffer = bytes; }
    // The bytes that the application writes; kForever: as many as it can.
    void write(std::size_t index, std::uint64_t bytes) {
        flows_[index].unsent = bytes == kForever ? kForever : flows_[index].unsent + bytes;
        send_later(index, std::max(now_, flows_[index].next_send_ns));
    }
    void stop(std::size_t index) { flows_[index].unsent = 0; }
    void at(std::uint64_t when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }
    // Calls `what` so many times a second from now on.
    void every(double per_second, const std::function<void()> &what) {
        what();
        at(now_ + static_cast<std::uint64_t>(1e9 / per_second), [this, per_second, what] { every(per_second, what); });
    }
    void run_until(std::uint64_t when) {
        while (!events_.empty() && events_.top().when <= when) {
            const Event next = events_.top();
            events_.pop();
            now_ = next.when;
            next.what();
        }
        now_ = when;
    }
    // Enforced from now on, without a word to the flows.
    void change_rate(std::uint64_t rate) { make_limit(&limit_, rate, AUTO_BURST_BITS); }
    [[nodiscard]] std::uint64_t backlog() const { return backlog_of(state_.free_at_ns, &limit_, now_); }
    // A packet that is not paced.
    void charge_other(std::uint64_t bytes) { charge(&state_, &limit_, bytes, now_, false, true); }

    // The same, as set_departure() in bpf/edt.h has it: whether it passes.
    bool pass_unpaced(std::uint32_t hash, std::uint64_t bytes) {
        const unpaced_flow flow = measure_unpaced(&state_, &limit_, hash, now_, backlog());
        if (backlog() > unpaced_tolerance(&flow, &limit_))
            return false;
        charge(&state_, &limit_, bytes, now_, false, !flow.is_surplus);
        charge_unpaced(&state_, &limit_, &flow, bytes, now_);
        return true;
    }

    [[nodiscard]] std::uint64_t now() const { return now_; }
    [[nodiscard]] const Flow &flow(std::size_t index) const { return flows_[index]; }
    [[nodiscard]] const limit_state &state() const { return state_; }

  private:
    struct Event {
        std::uint64_t when, order;
        std::function<void()> what;
        bool operator<(const Event &other) const {
            return when != other.when ? when > other.when : order > other.order;
        }
    };

    void send_later(std::size_t index, std::uint64_t when) {
        if (flows_[index].is_waiting)
            return;
        flows_[index].is_waiting = true;
        at(when, [this, index] {
            flows_[index].is_waiting = false;
            send(index);
        });
    }
    // A burst at a time, but for the first window, which the kernel does not pace.
    void send(std::size_t index) {
        Flow &flow = flows_[index];
        const bool is_first = flow.sent < kFirstWindow;
        std::uint64_t bytes = 0, on_the_wire = 0;
        for (std::uint64_t i = 0;
             (i < flow.burst || flow.sent < kFirstWindow) && flow.unsent > 0 && flow.in_flight < flow.window; ++i) {
            const std::uint64_t size = std::min(flow.unsent, kPayload);
            on_the_wire += size + kFrame - kPayload;
            flow.unsent -= flow.unsent == kForever ? 0 : size;
            ++flow.sent;
            ++flow.in_flight;
            bytes += size;
        }
        if (bytes == 0)
            return;
        charge(&state_, &limit_, on_the_wire, now_, is_first, false);
        flow.next_send_ns =
            now_ + (flow.sent > kFirstWindow ? bytes * NS_PER_S / std::max<std::uint64_t>(flow.rate, 1) : 0);
        const std::uint64_t segments = (bytes + kPayload - 1) / kPayload;
        at(now_ + flow.round_trip_ns, [this, index, bytes, segments] { acknowledge(index, bytes, segments); });
        if (flow.unsent > 0)
            send_later(index, flow.next_send_ns);
    }
    void acknowledge(std::size_t index, std::uint64_t bytes, std::uint64_t segments) {
        Flow &flow = flows_[index];
        flow.acked += bytes;
        flow.done_ns = now_;
        flow.in_flight -= segments;
        flow.window = std::min<std::uint64_t>(flow.window + segments, 20000);
        if (now_ - flow.renewed_ns >= flow.round_trip_ns) {
            flow.renewed_ns = now_;
            renew(flow);
        }
        if (flow.unsent > 0)
            send_later(index, std::max(now_, flow.next_send_ns));
    }
    // As rate_of() in bpf/pace.h.
    void renew(Flow &flow) {
        sender what{};
        what.now = now_;
        what.acked = flow.acked;
        what.round_trip_us = static_cast<std::uint32_t>(flow.round_trip_ns / 1000 + 1);
        what.burst = flow.burst * kPayload;
        what.is_backlogged = flow.unsent > 0;
        const std::uint64_t held = std::min(flow.unsent, flow.buffer) + flow.in_flight * kPayload;
        what.demand_per_s = std::min(held * 1000000 / std::max<std::uint64_t>(what.round_trip_us, DEMAND_US),
                                     2 * flow.window * kPayload * 1000000 / what.round_trip_us);
        note_round_trip(&state_, &what);
        const std::uint32_t weight = weigh(&flow.share, &what);
        const std::uint64_t part = aim(&limit_, backlog_beside(&state_, &limit_, &what),
                                       arrival_delay(&state_, &limit_), acting_delay(&state_));
        const std::uint64_t term = weight_term_of(scaled(state_.fair_bytes_per_s, part), &what);
        if (is_news(&state_, &flow.share, weight, now_, term))
            set_weight(&state_, &limit_, &flow.share, weight, now_, term);
        flow.rate = scaled(state_.fair_bytes_per_s, part);
        state_.paced_bytes_per_s = flow.rate;
        if (flow.sent <= kFirstWindow)
            flow.rate = behind_backlog(&state_, &limit_, now_, flow.rate);
        flow.share.rate = static_cast<std::uint32_t>(flow.rate);
    }

    limit limit_{};
    limit_state state_{};
    std::uint64_t now_ = kSecond / 100, order_ = 0;
    std::priority_queue<Event> events_;
    std::deque<Flow> flows_;
};

} // namespace podlane::simulation
