// SPDX-License-Identifier: MIT
// Texts that a change is not to alter unseen: each is compared with a file of the tree.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace podlane::test {

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

// PODLANE_WRITE_MESSAGES=1 writes `now` into the file.
inline void expect_as_in(const std::string &file, const std::string &now) {
    if (std::getenv("PODLANE_WRITE_MESSAGES") != nullptr)
        std::ofstream(source_path(file)) << now;
    EXPECT_EQ(now, source_text(file)) << "if the change is meant: PODLANE_WRITE_MESSAGES=1";
}

} // namespace podlane::test
