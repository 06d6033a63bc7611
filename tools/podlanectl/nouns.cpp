// SPDX-License-Identifier: MIT
// Every noun, in the order of the help texts. An abbreviation selects the first noun that begins with it.
#include "tools/podlanectl/cli/nouns.hpp"
#include "tools/podlanectl/doctor/nouns.hpp"
#include "tools/podlanectl/explain/nouns.hpp"
#include "tools/podlanectl/live/nouns.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/nouns.hpp"

#include <array>

namespace podlane::ctl {

std::span<const Noun> nouns() {
    static const std::array<Noun, 27> kNouns = {
        kEndpointNoun,  kCounterNoun, kBandwidthNoun,  kPathNoun,    kNetworkNoun, kUplinkNoun, kMapNoun,
        kStatusNoun,    kDoctorNoun,  kHistoryNoun,    kMetricsNoun, kProgramNoun, kSourceNoun, kUpgradeNoun,
        kExplainNoun,   kMonitorNoun, kTopNoun,        kGcNoun,      kRepairNoun,  kLoadNoun,   kInstallNoun,
        kUninstallNoun, kVersionNoun, kCompletionNoun, kManNoun,     kGroupNoun,   kLeaseNoun};
    return kNouns;
}

} // namespace podlane::ctl
