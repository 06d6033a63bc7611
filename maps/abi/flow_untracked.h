/* SPDX-License-Identifier: MIT */
/* A flag of struct flow, beside enum flow_flags. */
#pragma once

#include "flow.h"

/* conntrack does not know the flow: it took the fast path from its first packet on. */
enum flow_untracked { FLOW_UNTRACKED = 1 << 1 };
