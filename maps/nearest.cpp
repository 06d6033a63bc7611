// SPDX-License-Identifier: MIT
#include "maps/nearest.hpp"

#include <algorithm>
#include <vector>

namespace podlane {
namespace {

constexpr std::size_t kLongestWord = 32; // bounds the work for text of unknown origin

// Insertions, deletions, replacements and swaps of adjacent letters (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i)
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    return cost[a.size()][b.size()];
}

} // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates, std::size_t tolerated) {
    if (word.size() > kLongestWord)
        return {};
    std::string_view best;
    std::size_t fewest = std::max(tolerated, word.size() / 3) + 1;
    for (const std::string_view candidate : candidates)
        if (const std::size_t errors = edit_distance(word, candidate); errors < fewest && errors < candidate.size()) {
            fewest = errors;
            best = candidate;
        }
    return best;
}

} // namespace podlane
