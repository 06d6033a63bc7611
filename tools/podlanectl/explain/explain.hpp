// SPDX-License-Identifier: MIT
// The decisions of a traced run, in words.
#pragma once

#include "loader/trace.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/frame.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane::ctl {

// Of the decision that checks the source; in JSON it has the older name "source check".
constexpr const char *kAntiSpoofing = "anti-spoofing";

// One decision: the question, its answer, and the map entry or kernel lookup behind it.
struct Decision {
    std::string name;   // "receiver"
    std::string answer; // "default/web-1, behind cali12, MTU 1500"
    std::string map{};  // as pinned; empty: no map was looked up
    std::string key{};
    bool found = false;
};

struct Counted {
    std::uint32_t ifindex = 0; // 0: no endpoint's
    std::uint32_t reason = 0;
};

// The next program of Podlane that the packet passes.
struct Next {
    const char *program = nullptr; // none: not known
    std::uint32_t ifindex = 0;
    std::optional<std::uint32_t> came_by{}; // see Tracer::run
};

struct Explanation {
    std::vector<Decision> decisions{};
    std::uint32_t reason = 0;
    std::vector<Counted> counted{}; // its reason first
    Next next{};
    std::string verdict{};
};

// Names for the numbers in the steps.
struct Names {
    std::vector<EndpointEntry> endpoints{};
    std::map<std::uint32_t, std::string> networks{};
    std::string pod_of(std::uint32_t ifindex) const; // or the interface's name
};

// The explanation of a run on this interface.
Explanation explain_run(const TracedRun &run, std::uint32_t ifindex, const Bytes &frame, const Names &names);

} // namespace podlane::ctl
