// SPDX-License-Identifier: MIT
// What a random test is repeated and made longer by.
#pragma once

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace podlane::test {

inline unsigned long number_from(const char *variable, unsigned long otherwise) {
    const char *text = std::getenv(variable);
    return text != nullptr ? std::stoul(text) : otherwise;
}

// Of a random test's generator: PODLANE_SEED, or another one each time.
inline unsigned long printed_seed() {
    const auto seed = number_from("PODLANE_SEED", std::random_device()());
    std::cout << "PODLANE_SEED=" << seed << std::endl;
    return seed;
}

} // namespace podlane::test
