// SPDX-License-Identifier: MIT
// Expectations of a fuzz target.
#pragma once

#include <cstdlib>

inline void require(bool holds) {
    if (!holds)
        std::abort();
}
