// SPDX-License-Identifier: MIT
#include "plugin/history.hpp"

#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "maps/history.hpp"
#include "maps/tables.hpp"
#include "maps/clock.hpp"
#include "plugin/log.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <optional>

namespace podlane {
namespace {

constexpr std::uint64_t kNsPerUs = 1000;

// Of this process, which serves one call.
const std::uint64_t kProcessBeganRealtimeNs = realtime_ns(); // NOLINT(cert-err58-cpp): clocks do not fail
const std::uint64_t kProcessBeganNs = monotonic_ns();        // NOLINT(cert-err58-cpp): clocks do not fail

struct Clock {
    std::uint64_t switched_ns = kProcessBeganNs;
    operation_step step = STEP_OTHER;
    std::array<std::uint64_t, STEP_COUNT> spent_ns{};

    void switch_to(operation_step next) {
        const std::uint64_t now = monotonic_ns();
        spent_ns.at(step) += now - switched_ns;
        switched_ns = now;
        step = next;
    }
};

// Of the thread: podlanectl removes several attachments at a time.
thread_local Clock thread_clock; // NOLINT(cert-err58-cpp): clocks do not fail

std::optional<operation_verb> verb_of(cni::Command command) {
    switch (command) {
    case cni::Command::add:
        return OPERATION_ADD;
    case cni::Command::del:
        return OPERATION_DEL;
    case cni::Command::check:
        return OPERATION_CHECK;
    case cni::Command::gc:
        return OPERATION_GC;
    case cni::Command::status:
        return OPERATION_STATUS;
    case cni::Command::version:
        break;
    }
    return std::nullopt;
}

// As much of the text as there is room for.
void put_text(std::span<char> field, std::string_view text) { set_field(field, text.substr(0, field.size() - 1)); }

} // namespace

Step::Step(operation_step step) : outer_(thread_clock.step) {
    thread_clock.switch_to(step);
    began_ns_ = thread_clock.switched_ns;
}
Step::~Step() {
    const operation_step own = thread_clock.step;
    thread_clock.switch_to(outer_);
    if (own == outer_ || !is_logged(cni::Log::Level::debug))
        return;
    std::array<char, 32> took{};
    std::snprintf(took.data(), took.size(), "%.3f ms",
                  static_cast<double>(thread_clock.switched_ns - began_ns_) / kNsPerMs);
    log(cni::Log::Level::debug, "step " + std::string(kSteps.at(own).name) + ": " + took.data());
}

void record_operation(const cni::Request &request, const Result<std::string> &outcome) {
    const auto verb = verb_of(request.command);
    if (!verb)
        return;
    const auto own_netns = net::own_netns();
    if (!own_netns || !refuse_other_netns(request.config.bpffs, *own_netns)) // another node's
        return;
    auto history = HistoryWriter::open(request.config.bpffs);
    if (!history)
        return;
    thread_clock.switch_to(STEP_OTHER);
    operation done{};
    done.started_ns = kProcessBeganRealtimeNs;
    done.duration_ns = thread_clock.switched_ns - kProcessBeganNs;
    for (std::size_t i = 0; i < STEP_COUNT; ++i)
        done.step_us[i] = static_cast<std::uint32_t>(thread_clock.spent_ns.at(i) / kNsPerUs);
    done.verb = static_cast<std::uint8_t>(*verb);
    put_text(done.container_id, request.container_id);
    put_text(done.ifname, request.ifname);
    put_text(done.network_name, request.config.name);
    put_text(done.pod_name, request.pod.name);
    put_text(done.pod_namespace, request.pod.ns);
    if (!outcome) {
        done.error_code = static_cast<std::uint32_t>(outcome.error().code);
        put_text(done.message, outcome.error().message);
    }
    history->append(done);
}

} // namespace podlane
