// SPDX-License-Identifier: MIT
// A test's environment: the source tree, and the seed and the factor of a random test.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
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

// `file` is a path from the root of the tree.
inline std::string source_path(const std::string &file) {
    const char *source = std::getenv("PODLANE_SOURCE_DIR");
    return std::string(source != nullptr ? source : ".") + "/" + file;
}
inline std::string source_text(const std::string &file) {
    std::stringstream text;
    text << std::ifstream(source_path(file)).rdbuf();
    return text.str();
}

} // namespace podlane::test
