// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The maps that all programs share. */
#include "bpf/packet.h"
