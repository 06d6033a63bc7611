// SPDX-License-Identifier: MIT
// Quantities for people: "3m12s", "1.2 Gbit/s", "4.0 KiB", "2026-01-02T03:04:05Z".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::output {

// The two largest units: "850ms", "45s", "3m12s", "5h2m", "3d4h".
std::string duration_words(std::uint64_t ns);
std::string short_duration_words(std::uint64_t ns); // also below a second: "850us", "2.5ms", "85ms"
// Time since `since_ns` on the same clock; "0s" if it lies in the future.
std::string age_words(std::uint64_t since_ns, std::uint64_t now_ns);
std::string rate_words(std::uint64_t bits_per_s); // powers of 1000: "1.2 Gbit/s"
std::string bits_words(std::uint64_t bits);       // powers of 1000: "800 Mbit"
std::string bytes_words(std::uint64_t bytes);     // powers of 1024: "1.2 MiB"
std::string percent_words(std::uint64_t part, std::uint64_t whole);
std::string utc_words(std::uint64_t realtime_ns); // RFC 3339, whole seconds
std::string hex_words(std::uint32_t number);      // "0x0000beef"

} // namespace podlane::output
