// SPDX-License-Identifier: MIT
// The nouns of explain.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kExplainNoun;

} // namespace podlane::ctl
