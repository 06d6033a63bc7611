// SPDX-License-Identifier: MIT
// The nouns that follow what happens.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kMetricsNoun;
extern const Noun kMonitorNoun;
extern const Noun kTopNoun;

} // namespace podlane::ctl
