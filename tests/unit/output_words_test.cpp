// SPDX-License-Identifier: MIT
// Quantities in words.
#include "tools/output/words.hpp"

#include <gtest/gtest.h>

namespace podlane::output {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(Duration, shows_the_two_largest_units) {
    EXPECT_EQ(duration_words(0), "0s");
    EXPECT_EQ(duration_words(kSecond - 1), "999ms");
    EXPECT_EQ(duration_words(45 * kSecond), "45s");
    EXPECT_EQ(duration_words(192 * kSecond), "3m12s");
    EXPECT_EQ(duration_words(3600 * kSecond + 59 * kSecond), "1h");
    EXPECT_EQ(duration_words((5 * 3600 + 2 * 60) * kSecond), "5h2m");
    EXPECT_EQ(duration_words((3 * 86400 + 4 * 3600) * kSecond), "3d4h");
}

TEST(Duration, short_ones_have_two_digits) {
    EXPECT_EQ(short_duration_words(850'999), "850us");
    EXPECT_EQ(short_duration_words(2'540'000), "2.5ms");
    EXPECT_EQ(short_duration_words(9'960'000), "10ms");
    EXPECT_EQ(short_duration_words(85'000'000), "85ms");
    EXPECT_EQ(short_duration_words(192 * kSecond), "3m12s");
}

TEST(Duration, of_a_future_start_is_zero) { EXPECT_EQ(age_words(2 * kSecond, kSecond), "0s"); }

TEST(Rate, counts_in_thousands) {
    EXPECT_EQ(rate_words(0), "0 bit/s");
    EXPECT_EQ(rate_words(999), "999 bit/s");
    EXPECT_EQ(rate_words(1'200'000'000), "1.2 Gbit/s");
    EXPECT_EQ(rate_words(100'000'000), "100 Mbit/s");
    EXPECT_EQ(rate_words(999'999'999), "1 Gbit/s");
    EXPECT_EQ(bits_words(2147483647), "2.1 Gbit");
}

TEST(Bytes, counts_in_1024) {
    EXPECT_EQ(bytes_words(1023), "1023 B");
    EXPECT_EQ(bytes_words(1024), "1 KiB");
    EXPECT_EQ(bytes_words(1536), "1.5 KiB");
    EXPECT_EQ(bytes_words(UINT64_MAX), "16384 PiB");
}

TEST(Percent, has_a_decimal_only_where_it_tells_something) {
    EXPECT_EQ(percent_words(0, 100), "0%");
    EXPECT_EQ(percent_words(1, 300), "0.3%");
    EXPECT_EQ(percent_words(95, 100), "95%");
    EXPECT_EQ(percent_words(1, 0), "-");
}

TEST(Utc, is_rfc_3339) { EXPECT_EQ(utc_words(1'767'323'045 * kSecond + 5), "2026-01-02T03:04:05Z"); }

} // namespace
} // namespace podlane::output
