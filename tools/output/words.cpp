// SPDX-License-Identifier: MIT
#include "words.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <span>

namespace podlane::output {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;

std::string print(const char *format, auto... values) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, values...);
    return text.data();
}

// One decimal below 100 ("1.2 G", "99.9 G"), none above, or if it would be ".0".
std::string scaled(std::uint64_t amount, unsigned step, std::span<const char *const> units) {
    std::uint64_t unit = 1;
    std::size_t i = 0;
    while (i + 1 < units.size() && amount / unit >= step) {
        unit *= step;
        ++i;
    }
    const double shown = static_cast<double>(amount) / static_cast<double>(unit);
    if (shown >= step - 0.5 && i + 1 < units.size())
        return print("1 %s", units[i + 1]);
    return print(amount % unit == 0 || shown >= 99.95 ? "%.0f %s" : "%.1f %s", shown, units[i]);
}

} // namespace

std::string short_duration_words(std::uint64_t ns) {
    constexpr std::uint64_t kUs = 1000;
    constexpr double kOneDecimal = 9.95;
    if (ns >= kSecond)
        return duration_words(ns);
    if (ns < kMs)
        return print("%" PRIu64 "us", ns / kUs);
    const double ms = static_cast<double>(ns) / static_cast<double>(kMs);
    return print(ms < kOneDecimal ? "%.1fms" : "%.0fms", ms);
}

std::string duration_words(std::uint64_t ns) {
    struct Unit {
        std::uint64_t s;
        const char *name;
    };
    static constexpr std::array<Unit, 4> kUnits = {{{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}}};
    if (ns == 0)
        return "0s";
    if (ns < kSecond)
        return print("%" PRIu64 "ms", ns / kMs);
    const std::uint64_t seconds = ns / kSecond;
    std::size_t i = 0;
    while (seconds < kUnits[i].s)
        ++i;
    std::string text = print("%" PRIu64 "%s", seconds / kUnits[i].s, kUnits[i].name);
    if (i + 1 < kUnits.size() && seconds % kUnits[i].s / kUnits[i + 1].s != 0)
        text += print("%" PRIu64 "%s", seconds % kUnits[i].s / kUnits[i + 1].s, kUnits[i + 1].name);
    return text;
}

std::string age_words(std::uint64_t since_ns, std::uint64_t now_ns) {
    return duration_words(now_ns > since_ns ? now_ns - since_ns : 0);
}

std::string rate_words(std::uint64_t bits_per_s) {
    static constexpr std::array kUnits = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    return scaled(bits_per_s, 1000, kUnits);
}

std::string bits_words(std::uint64_t bits) {
    static constexpr std::array kUnits = {"bit", "kbit", "Mbit", "Gbit", "Tbit"};
    return scaled(bits, 1000, kUnits);
}

std::string bytes_words(std::uint64_t bytes) {
    static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled(bytes, 1024, kUnits);
}

std::string percent_words(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0)
        return "-";
    const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
    return print(part != 0 && percent < 9.95 ? "%.1f%%" : "%.0f%%", percent);
}

std::string utc_words(std::uint64_t realtime_ns) {
    const auto seconds = static_cast<std::time_t>(realtime_ns / kSecond);
    std::tm parts{};
    std::array<char, 32> text{};
    if (gmtime_r(&seconds, &parts) == nullptr)
        return {};
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string hex_words(std::uint32_t number) { return print("0x%08" PRIx32, number); }

} // namespace podlane::output
