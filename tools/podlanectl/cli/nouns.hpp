// SPDX-License-Identifier: MIT
// The nouns of the command line itself.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kCompletionNoun;
extern const Noun kManNoun;

} // namespace podlane::ctl
