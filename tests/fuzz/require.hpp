// SPDX-License-Identifier: MIT
// What a fuzz target expects of its subject.
#pragma once

#include <cstdlib>

inline void require(bool holds) {
    if (!holds)
        std::abort();
}
