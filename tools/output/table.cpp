// SPDX-License-Identifier: MIT
#include "table.hpp"

#include "maps/text.hpp"
#include "words.hpp"

#include <algorithm>

namespace podlane::output {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kNarrowest = 4; // no column is cut below this

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }

// Characters, not bytes; every character is assumed to be one column wide.
std::size_t width(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, starts_character));
}

std::string fitted(std::string_view text, std::size_t columns) {
    if (width(text) <= columns)
        return std::string(text);
    std::size_t bytes = 0;
    for (std::size_t seen = 0; bytes < text.size(); ++bytes)
        if (starts_character(text[bytes]) && ++seen == columns)
            break;
    return std::string(text.substr(0, bytes)) + "…";
}

std::string padded(std::string_view text, std::size_t columns, const Heading &heading, bool last, Tone tone,
                   const Style &style) {
    const std::string shown = fitted(text, columns);
    const std::string space(columns - width(shown), ' ');
    if (heading.align == Align::right)
        return space + toned(shown, tone, style);
    return toned(shown, tone, style) + (last ? "" : space);
}

std::vector<std::size_t> natural_widths(const Table &table, const std::vector<std::size_t> &shown) {
    std::vector<std::size_t> widths;
    for (const std::size_t column : shown) {
        std::size_t widest = width(table.headings[column].title);
        for (const std::vector<Cell> &row : table.rows)
            widest = std::max(widest, width(row[column].text));
        widths.push_back(widest);
    }
    return widths;
}

void shrink(std::vector<std::size_t> &widths, std::size_t room) {
    std::size_t total = 0;
    for (const std::size_t one : widths)
        total += one;
    while (total > room) {
        const auto widest = std::ranges::max_element(widths);
        if (*widest <= kNarrowest)
            return;
        --*widest;
        --total;
    }
}

// Broken at spaces; the lines after the first begin under it. A word that is too long keeps its length.
std::string wrapped(std::string_view text, std::size_t indent, const Style &style) {
    if (style.width <= indent + kNarrowest)
        return std::string(text);
    const std::size_t room = style.width - indent;
    std::string lines;
    std::size_t used = 0;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, std::min(text.find(' '), text.size()));
        if (used != 0 && used + 1 + width(word) > room) {
            lines += "\n" + std::string(indent, ' ');
            used = 0;
        }
        lines += std::string(used == 0 ? "" : " ") + std::string(word);
        used += (used == 0 ? 0 : 1) + width(word);
        text.remove_prefix(std::min(word.size() + 1, text.size()));
    }
    return lines;
}

} // namespace

Cell text_cell(std::string_view text, Tone tone) {
    return {text.empty() ? "-" : std::string(text), text.empty() ? Value() : Value(text), tone};
}

Cell number_cell(std::uint64_t number) { return {std::to_string(number), number}; }

Cell list_cell(const std::vector<std::string> &items) { return {items.empty() ? "-" : join(items, ","), Value(items)}; }

std::string table_text(const Table &table, const Style &style) {
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < table.headings.size(); ++i)
        if (!table.headings[i].title.empty())
            shown.push_back(i);
    std::vector<std::size_t> widths = natural_widths(table, shown);
    const std::size_t gaps = style.indent.size() + kGap.size() * (shown.empty() ? 0 : shown.size() - 1);
    if (style.width > gaps)
        shrink(widths, style.width - gaps);

    std::string text;
    const auto line = [&](auto &&cell) {
        text += style.indent;
        for (std::size_t i = 0; i < shown.size(); ++i) {
            const bool last = i + 1 == shown.size();
            const auto [content, tone] = cell(shown[i]);
            text += padded(content, widths[i], table.headings[shown[i]], last, tone, style);
            text += last ? "\n" : kGap;
        }
    };
    line([&](std::size_t i) { return std::pair(table.headings[i].title, Tone::strong); });
    for (const std::vector<Cell> &row : table.rows)
        line([&](std::size_t i) { return std::pair(std::string_view(row[i].text), row[i].tone); });
    return text;
}

std::string record_text(const Table &table, const Style &style) {
    std::size_t widest = 0;
    for (const Heading &heading : table.headings)
        widest = std::max(widest, width(heading.label));
    std::string text;
    for (const std::vector<Cell> &row : table.rows) {
        if (!text.empty())
            text += "\n";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string_view label = table.headings[i].label;
            if (label.empty() || row[i].text.empty() || row[i].text == "-")
                continue;
            text += std::string(style.indent) + toned(label, Tone::faint, style);
            text += std::string(widest - width(label), ' ') + std::string(kGap);
            const std::size_t before = style.indent.size() + widest + kGap.size();
            text += toned(wrapped(row[i].text, before, style), row[i].tone, style) + "\n";
        }
    }
    return text;
}

Array table_value(const Table &table) {
    Array items;
    for (const std::vector<Cell> &row : table.rows) {
        Object members;
        for (std::size_t i = 0; i < row.size(); ++i)
            if (!table.headings[i].field.empty())
                members.emplace_back(table.headings[i].field, row[i].raw);
        items.emplace_back(std::move(members));
    }
    return items;
}

} // namespace podlane::output
