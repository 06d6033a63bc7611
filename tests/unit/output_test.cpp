// SPDX-License-Identifier: MIT
// Quantities in words; and one declaration of columns, printed as a table, as a record and as JSON.
#include "tools/output/exposition.hpp"
#include "tools/output/table.hpp"
#include "tools/output/words.hpp"
#include "tests/harness/test.hpp"

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

TEST(Percent, has_a_decimal_only_if_it_matters) {
    EXPECT_EQ(percent_words(0, 100), "0%");
    EXPECT_EQ(percent_words(1, 300), "0.3%");
    EXPECT_EQ(percent_words(95, 100), "95%");
    EXPECT_EQ(percent_words(1, 0), "-");
}

TEST(Utc, is_rfc_3339) { EXPECT_EQ(utc_words(1'767'323'045 * kSecond + 5), "2026-01-02T03:04:05Z"); }

struct Row {
    std::string name;
    std::uint64_t size;
};

constexpr std::array<Column<Row>, 3> kColumns = {{
    {{"NAME", "name", "name"}, [](const Row &r) { return text_cell(r.name, Tone::bad); }},
    {{"SIZE", "size", "size", Align::right}, [](const Row &r) { return number_cell(r.size); }},
    {{"", "", "even"},
     [](const Row &r) {
         return Cell{"", r.size % 2 == 0};
     }},
}};

Table two_rows() { return make_table(kColumns, std::vector<Row>{{"a", 5}, {"a-name-of-twenty-chars", 12000}}); }

TEST(Table, aligns_columns_and_leaves_no_trailing_space) {
    EXPECT_EQ(table_text(make_table(kColumns, std::vector<Row>{{"a", 5}, {"bcdefg", 12000}}), {}), "NAME     SIZE\n"
                                                                                                   "a           5\n"
                                                                                                   "bcdefg  12000\n");
    EXPECT_EQ(table_text(Table{{{"ONE", "", ""}}, {{text_cell("x")}}}, {}), "ONE\nx\n");
}

TEST(Table, without_rows_still_has_titles) {
    EXPECT_EQ(table_text(make_table(kColumns, std::vector<Row>{}), {}), "NAME  SIZE\n");
}

TEST(Table, fits_the_terminal_by_cutting_the_widest_column) {
    EXPECT_EQ(table_text(two_rows(), {false, 20, {}}), "NAME            SIZE\n"
                                                       "a                  5\n"
                                                       "a-name-of-tw…  12000\n");
}

TEST(Table, fits_a_very_narrow_terminal_as_well) {
    EXPECT_EQ(table_text(two_rows(), {false, 12, {}}), "NAME    SIZE\n"
                                                       "a          5\n"
                                                       "a-na…  12000\n");
}

TEST(Table, is_not_cut_if_there_is_no_terminal) {
    EXPECT_NE(table_text(two_rows(), {}).find("a-name-of-twenty-chars"), std::string::npos);
}

TEST(Table, counts_characters_not_bytes) {
    const Table table{{{"A", "", ""}, {"B", "", ""}}, {{text_cell("ééé"), text_cell("x")}}};
    EXPECT_EQ(table_text(table, {}), "A    B\nééé  x\n");
}

TEST(Table, prints_nothing_that_a_terminal_obeys) {
    const Table table = make_table(kColumns, std::vector<Row>{{"a\nb\033[2J", 5}});
    EXPECT_EQ(table_text(table, {}), "NAME     SIZE\na?b?[2J     5\n");
    EXPECT_EQ(record_text(table, {}), "name  a?b?[2J\nsize  5\n");
}

TEST(Exposition, label_values_are_one_line_of_utf8) {
    Exposition out(MetricsFormat::prometheus);
    out.gauge("up", "Help.");
    out.sample({{"pod", "a\"} 1\nforged 1\xff"}}, 1);
    EXPECT_EQ(std::move(out).text(), "# HELP up Help.\n# TYPE up gauge\nup{pod=\"a\\\"} 1?forged 1?\"} 1\n");
}

TEST(Table, colours_only_if_the_style_allows_it) {
    EXPECT_EQ(table_text(two_rows(), {}).find('\033'), std::string::npos);
    EXPECT_NE(table_text(two_rows(), {true, 0, {}}).find("\033[31ma\033[0m"), std::string::npos);
}

TEST(Record, breaks_long_values_at_spaces_on_a_terminal) {
    const Table table = make_table(kColumns, std::vector<Row>{{"one two three four", 5}});
    EXPECT_EQ(record_text(table, {false, 15, {}}), "name  one two\n"
                                                   "      three\n"
                                                   "      four\n"
                                                   "size  5\n");
    EXPECT_EQ(record_text(table, {}), "name  one two three four\nsize  5\n");
}

TEST(Record, leaves_out_what_is_not_known) {
    EXPECT_EQ(record_text(make_table(kColumns, std::vector<Row>{{"", 5}, {"b", 6}}), {}),
              "size  5\n\nname  b\nsize  6\n");
}

TEST(Json, has_raw_values_in_the_order_of_the_columns) {
    EXPECT_EQ(json_text(table_value(make_table(kColumns, std::vector<Row>{{"", 18446744073709551615U}}))),
              "[\n  {\n    \"name\": null,\n    \"size\": 18446744073709551615,\n    \"even\": false\n  }\n]\n");
}

TEST(Json, replaces_bytes_that_are_not_utf8) { EXPECT_EQ(json_text(std::string("a\xff")), "\"a\xef\xbf\xbd\"\n"); }

TEST(Style, is_plain_and_unlimited_on_a_pipe) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    setenv("COLUMNS", "40", 1);
    const Style style = style_of(ends[1]);
    EXPECT_FALSE(style.colour);
    EXPECT_EQ(style.width, 0U);
    unsetenv("COLUMNS");
    close(ends[0]);
    close(ends[1]);
}

TEST(Style, of_a_terminal_honours_no_color_and_columns) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0)
        GTEST_SKIP() << "no pseudo terminal to be had";
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    setenv("COLUMNS", "77", 1);
    EXPECT_TRUE(style_of(terminal).colour);
    EXPECT_EQ(style_of(terminal).width, 77U);
    setenv("NO_COLOR", "1", 1);
    EXPECT_FALSE(style_of(terminal).colour);
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    close(terminal);
}

} // namespace
} // namespace podlane::output
