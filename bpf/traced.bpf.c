// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The copies that `podlanectl explain` runs over a packet. */
#define TRACED_COPY

#include "bpf/programs.h"
