// SPDX-License-Identifier: MIT
// The upgrade of a version to come: podlane_next ROOT
#include "loader/upgrade.hpp"

#include <cstdio>

int main(int count, char **words) {
    if (count != 2)
        return 2;
    const auto done = podlane::upgrade(words[1], true);
    if (!done)
        std::fprintf(stderr, "%s\nhint: %s\n", done.error().message.c_str(), done.error().hint.c_str());
    return done ? 0 : 1;
}
