// SPDX-License-Identifier: MIT
// Texts that a change is not to alter unseen: each is compared with a file of the tree.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace podlane::test {

// `file` is a path from the root of the tree; PODLANE_WRITE_MESSAGES=1 writes `now` into it.
inline void expect_as_in(const std::string &file, const std::string &now) {
    const char *source = std::getenv("PODLANE_SOURCE_DIR");
    const std::string path = std::string(source != nullptr ? source : ".") + "/" + file;
    if (std::getenv("PODLANE_WRITE_MESSAGES") != nullptr)
        std::ofstream(path) << now;
    std::stringstream before;
    before << std::ifstream(path).rdbuf();
    EXPECT_EQ(now, before.str()) << "if the change is meant: PODLANE_WRITE_MESSAGES=1";
}

} // namespace podlane::test
