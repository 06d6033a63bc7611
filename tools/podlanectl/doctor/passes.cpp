// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/passes.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace podlane::ctl::doctor {
namespace {

// Check, pod, and words.
using RowKey = std::tuple<std::string_view, std::string, std::string>;

RowKey key_of_row(const Row &row) {
    if (row.finding.is_unchecked)
        return {row.check->name, row.pod, ""};
    const std::string &what = row.finding.what;
    const std::size_t end = what.rfind(": ");
    const bool has_number = end != std::string::npos && what.find_first_of("0123456789", end) == end + 2;
    return {row.check->name, row.pod, has_number ? what.substr(0, end) : what};
}

// Of the passes so far: those that found it, and those that looked and did not.
struct Sightings {
    const Row *row = nullptr;
    std::size_t found = 0, missed = 0;
    std::size_t latest = 0; // the last of them that found it
    bool is_gone = false;   // the last one looked

    [[nodiscard]] bool counts() const { return !is_gone && (found > 1 || missed == 0); }
    [[nodiscard]] bool is_open() const { return counts() && found == 1; }
};
using AllSightings = std::map<RowKey, Sightings>;

AllSightings sightings_in(const std::vector<Examined> &passes) {
    AllSightings all;
    std::vector<std::set<RowKey>> found(passes.size());
    for (std::size_t i = 0; i < passes.size(); ++i)
        for (const Row &row : passes[i].rows)
            if (row.is_wrong() && found[i].insert(key_of_row(row)).second) {
                Sightings &seen = all[key_of_row(row)];
                seen.row = &row;
                seen.latest = i;
                ++seen.found;
            }
    for (auto &[key, seen] : all)
        for (std::size_t i = 0; i < passes.size(); ++i)
            if (!found[i].contains(key) && !hides(passes[i], *seen.row)) {
                ++seen.missed;
                seen.is_gone = i + 1 == passes.size();
            }
    return all;
}

// Notices are those of the last pass.
Examined rows_that_count(std::vector<Examined> passes, const AllSightings &all) {
    Examined result{.checks = passes.back().checks, .is_partial = passes.back().is_partial};
    for (std::size_t i = passes.size(); i-- > 0;)
        for (Row &row : passes[i].rows) {
            const auto seen = row.is_wrong() ? all.find(key_of_row(row)) : all.end();
            if (seen != all.end() ? seen->second.counts() && seen->second.latest == i : i + 1 == passes.size())
                result.rows.push_back(std::move(row));
        }
    return result;
}

} // namespace

// A check's remedy may be a new sandbox, for those of its findings that have no repair, or none that succeeded.
std::string Row::remedy() const {
    if (!finding.remedy.empty())
        return finding.remedy;
    const bool names_repair = check->remedy.find("podlanectl repair") != std::string_view::npos ||
                              check->remedy.find("doctor --fix") != std::string_view::npos;
    const bool is_repairable = finding.repair && fixed.empty();
    return is_repairable && !names_repair ? "podlanectl doctor --fix" : std::string(check->remedy);
}

bool is_same(const Row &a, const Row &b) { return key_of_row(a) == key_of_row(b); }

// A check of the node that fails may be what another one goes by. That of an endpoint's plan runs only if the others
// have found nothing.
bool hides(const Examined &examined, const Row &row) {
    const bool is_plan = row.check->name == kPlanCheck && !row.finding.is_unchecked;
    return examined.is_partial || std::ranges::any_of(examined.rows, [&](const Row &other) {
               return other.pod == row.pod && (is_plan || (other.is_wrong() && other.finding.is_unchecked));
           });
}

void merge(std::vector<Row> &before, Examined now) {
    for (Row &row : now.rows)
        for (const Row &old : before)
            if (old.is_fixed() && is_same(old, row))
                row.fixed = "no: it was found again";
    std::erase_if(before, [&](const Row &old) {
        return old.finding.is_unchecked ||
               std::ranges::any_of(now.rows, [&](const Row &row) { return is_same(old, row); });
    });
    const auto is_replaced = [&](const Row &old) {
        return !old.pod.empty() && old.has_failed() && std::ranges::any_of(now.rows, [&](const Row &row) {
            return row.pod == old.pod && row.check == old.check;
        });
    };
    for (Row &old : before)
        if (!hides(now, old) && !is_replaced(old))
            old.fixed = "yes";
    std::ranges::move(now.rows, std::back_inserter(before));
}

Result<Examined> examine_in_passes(const std::function<Result<Examined>(bool only_settled)> &look) {
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000'000};
    constexpr std::size_t kMostPasses = 4;
    std::vector<Examined> passes;
    for (;;) {
        Examined now = TRY(look(!passes.empty()));
        if (std::ranges::none_of(now.rows, &Row::is_wrong))
            return now;
        passes.push_back(std::move(now));
        const AllSightings all = sightings_in(passes);
        const bool is_open = std::ranges::any_of(all, [](const auto &one) { return one.second.is_open(); });
        if (!is_open || passes.size() == kMostPasses)
            return rows_that_count(std::move(passes), all);
        nanosleep(&kPause, nullptr);
    }
}

} // namespace podlane::ctl::doctor
