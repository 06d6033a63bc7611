// SPDX-License-Identifier: MIT
// The nouns that show state.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kEndpointNoun;
extern const Noun kCounterNoun;
extern const Noun kBandwidthNoun;
extern const Noun kPathNoun;
extern const Noun kNetworkNoun;
extern const Noun kUplinkNoun;
extern const Noun kMapNoun;
extern const Noun kStatusNoun;
extern const Noun kGroupNoun;
extern const Noun kHistoryNoun;
extern const Noun kProgramNoun;
extern const Noun kSourceNoun;
extern const Noun kVersionNoun;

} // namespace podlane::ctl
