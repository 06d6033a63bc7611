// SPDX-License-Identifier: MIT
// Texts that a change is not to alter unseen: each is compared with a file of the tree.
#pragma once

#include "tests/harness/environment.hpp"
#include "tests/harness/test.hpp"

namespace podlane::test {

inline std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        lines.push_back(line);
    return lines;
}

// As `diff -U1` prints it. It is what EXPECT_EQ prints of two texts, though GoogleTest calls it internal.
inline std::string difference(const std::string &before, const std::string &after) {
    return testing::internal::edit_distance::CreateUnifiedDiff(lines_of(before), lines_of(after), 1);
}

// PODLANE_WRITE_MESSAGES=1 writes `now` into the file.
inline void expect_as_in(const std::string &file, const std::string &now) {
    if (std::getenv("PODLANE_WRITE_MESSAGES") != nullptr)
        std::ofstream(source_path(file)) << now;
    EXPECT_EQ(now, source_text(file)) << "if the change is meant: PODLANE_WRITE_MESSAGES=1";
}

} // namespace podlane::test
