// SPDX-License-Identifier: MIT
// Columns are declared once; a table of them is printed as text, a record of them as lines, both as JSON.
#pragma once

#include "maps/printable.hpp"
#include "terminal.hpp"
#include "value.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::output {

// One value as text for people and as raw JSON for programs.
struct Cell {
    std::string text;
    Value raw;
    Tone tone = Tone::plain;
};

// A cell whose text is its raw value.
Cell text_cell(std::string_view text, Tone tone = Tone::plain);
Cell number_cell(std::uint64_t number);
Cell list_cell(const std::vector<std::string> &items); // "a,b" or "-"; an array in JSON

enum class Align { left, right };

struct Heading {
    std::string_view title; // of the column in a table; empty: not in text tables
    std::string_view label; // of the line in a record; empty: not in text records
    std::string_view field; // member in JSON; empty: not in JSON. Documented and stable.
    Align align = Align::left;
};

template <typename Row> struct Column {
    Heading heading;
    Cell (*cell)(const Row &row);
};

struct Table {
    std::vector<Heading> headings;
    std::vector<std::vector<Cell>> rows;
};

enum class Wanted { all, titled }; // titled: for text tables only, saves time with very many rows

template <typename Row, std::size_t N>
Table make_table(const std::array<Column<Row>, N> &columns, const std::vector<Row> &rows, Wanted wanted = Wanted::all) {
    const auto is_wanted = [&](const Heading &heading) { return wanted == Wanted::all || !heading.title.empty(); };
    Table table;
    for (const Column<Row> &column : columns)
        if (is_wanted(column.heading))
            table.headings.push_back(column.heading);
    table.rows.reserve(rows.size());
    for (const Row &row : rows) {
        std::vector<Cell> &cells = table.rows.emplace_back();
        cells.reserve(table.headings.size());
        for (const Column<Row> &column : columns)
            if (is_wanted(column.heading))
                cells.push_back(column.cell(row));
        for (Cell &cell : cells)
            if (!is_printable(cell.text))
                cell.text = printable(cell.text);
    }
    return table;
}

// Padded columns under their titles; on a terminal the widest columns are cut ("long-na…") until it fits.
std::string table_text(const Table &table, const Style &style);
// One block of "label  value" lines for each row, blocks separated by an empty line; empty values are left out.
std::string record_text(const Table &table, const Style &style);
// An array with one object for each row.
Array table_value(const Table &table);

} // namespace podlane::output
