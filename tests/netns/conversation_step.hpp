// SPDX-License-Identifier: MIT
// Steps of random conversations, as data.
#pragma once

#include "tests/harness/talk.hpp"

#include <array>
#include <random>
#include <string>

namespace podlane::test {

enum class Verb { open, talk, shut, close, reset, close_both, evict, pause };
enum class Side { client, server };
enum class Caller { pod, endpoint, outside, node };
enum class Target { service, sticky, refused, pod, node_port, host_port, outside, closed };
inline constexpr int kSlots = 6;

struct Step {
    Verb verb = Verb::open;
    int slot = 0;
    Side side = Side::client;
    Caller caller = Caller::pod;
    Target target = Target::service;
    Transport transport = Transport::tcp;
    std::uint16_t port = 0;
    std::size_t bytes = 0;
};

inline std::string text_of(const Step &step) {
    constexpr std::array kVerbs = {"open", "talk", "shut", "close", "reset", "close both", "evict", "pause"};
    constexpr std::array kCallers = {"pod", "endpoint", "outside", "node"};
    constexpr std::array kTargets = {"service",   "sticky",    "refused", "pod",
                                     "node port", "host port", "outside", "closed"};
    std::string text = kVerbs.at(static_cast<std::size_t>(step.verb)) + (" " + std::to_string(step.slot));
    if (step.verb == Verb::open)
        return text + " " + to_string(step.transport) + " " + kCallers.at(static_cast<std::size_t>(step.caller)) + ":" +
               std::to_string(step.port) + " to " + kTargets.at(static_cast<std::size_t>(step.target));
    return text + (step.side == Side::client ? " client " : " server ") + std::to_string(step.bytes);
}

// Few ports, so that they are reused. Not after a reset: conntrack, which has not seen the sequence numbers, then keeps
// the connection as ESTABLISHED for nf_conntrack_tcp_timeout_close, with the endpoint that it had.
inline Step random_step(std::mt19937 &random) {
    const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    Step step;
    step.slot = static_cast<int>(below(kSlots));
    step.side = below(2) == 0 ? Side::client : Side::server;
    step.transport = below(3) == 0 ? Transport::udp : Transport::tcp;
    step.caller = static_cast<Caller>(std::array{0, 0, 0, 1, 2, 2, 3}.at(below(7)));
    step.target = step.caller == Caller::outside ? (below(2) == 0 ? Target::node_port : Target::host_port)
                                                 : static_cast<Target>(below(8));
    step.port = static_cast<std::uint16_t>(20000 + below(30));
    step.bytes = std::array<std::size_t, 6>{1, 37, 900, 4000, 66001, 299999}.at(below(6));
    const unsigned roll = below(100);
    step.verb = roll < 25   ? Verb::open
                : roll < 75 ? Verb::talk
                : roll < 79 ? Verb::shut
                : roll < 84 ? Verb::close
                : roll < 87 ? Verb::reset
                : roll < 96 ? Verb::close_both
                : roll < 99 ? Verb::evict
                            : Verb::pause;
    return step;
}

} // namespace podlane::test
