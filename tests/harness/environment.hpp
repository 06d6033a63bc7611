// SPDX-License-Identifier: MIT
// What a random test is repeated and made longer by.
#pragma once

#include <cstdlib>
#include <string>

namespace podlane::test {

inline unsigned long number_from(const char *variable, unsigned long otherwise) {
    const char *text = std::getenv(variable);
    return text != nullptr ? std::stoul(text) : otherwise;
}

} // namespace podlane::test
