// SPDX-License-Identifier: MIT
// The nouns that change the node as a whole.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kUpgradeNoun;
extern const Noun kGcNoun;
extern const Noun kLeaseNoun;
extern const Noun kLoadNoun;
extern const Noun kInstallNoun;
extern const Noun kUninstallNoun;

} // namespace podlane::ctl
