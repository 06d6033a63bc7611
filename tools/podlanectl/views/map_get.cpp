// SPDX-License-Identifier: MIT
// map get: the one entry of a map that a key in words names.
#include "maps/text.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace podlane::ctl {
namespace {

using Cells = std::vector<output::Cell>;

// The parts of a map's key.
std::span<const KeyPart> parts_of(const KnownMap &map) {
    const auto end = std::ranges::find(map.key, std::string_view{}, &KeyPart::column);
    return std::span(map.key).first(static_cast<std::size_t>(end - map.key.begin()));
}

std::string key_words(const KnownMap &map) {
    std::string text;
    for (const KeyPart &part : parts_of(map))
        for (const char c : (text.empty() ? "" : " ") + std::string(part.column))
            text += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return text;
}

// In a dump, the column of this title or field.
std::optional<std::size_t> column_of(const output::Table &table, std::string_view name) {
    for (std::size_t i = 0; i < table.headings.size(); ++i)
        if (table.headings[i].title == name || table.headings[i].field == name)
            return i;
    return std::nullopt;
}

std::uint64_t ifindex_in(const output::Table &table, const Cells &row) {
    const auto column = column_of(table, "ifindex");
    const auto *number = column ? std::get_if<std::uint64_t>(&row[*column].raw.data) : nullptr;
    return number == nullptr ? 0 : *number;
}

// One word of the key, and its possible meanings.
struct KeyWord {
    std::string text;
    Result<ip_addr> addr;
    Result<Prefix> prefix;
    std::set<std::uint64_t> ifindexes{}; // of the endpoints it names
};

Result<std::vector<KeyWord>> read_words(const Call &call, const World &world) {
    std::vector<KeyWord> words;
    for (const std::string &text : call.more) {
        KeyWord &word = words.emplace_back(KeyWord{text, parse_ip(text), parse_prefix(text)});
        if (const auto number = parse_number<std::uint32_t>(text))
            word.ifindexes.insert(*number);
        if (const auto named = selected_endpoints(Selection::of_word(text), world))
            for (const auto &[key, value] : *named)
                word.ifindexes.insert(value.ifindex);
    }
    return words;
}

bool is(const KeyWord &word, const KeyPart &part, const output::Table &table, const Cells &row) {
    const auto column = column_of(table, part.column);
    const std::string text = column ? row[*column].text : "";
    if (!text.empty() && word.text == text)
        return true;
    switch (part.kind) {
    case KeyPart::Kind::endpoint:
        return word.ifindexes.contains(ifindex_in(table, row)) && ifindex_in(table, row) != 0;
    case KeyPart::Kind::address: {
        const auto addr = parse_ip(text);
        return addr && word.addr && *addr == *word.addr;
    }
    case KeyPart::Kind::prefix: {
        const auto prefix = parse_prefix(text);
        return prefix && (word.addr ? is_ipv4(prefix->addr) == is_ipv4(*word.addr) && contains(*prefix, *word.addr)
                                    : word.prefix && to_string(masked(*word.prefix)) == to_string(*prefix));
    }
    case KeyPart::Kind::word:
        break;
    }
    return false;
}

// Whether the words are parts of the row's key, in their order.
bool names(std::span<const KeyWord> words, std::span<const KeyPart> parts, const output::Table &table,
           const Cells &row) {
    if (words.empty() || parts.empty())
        return words.empty();
    return (is(words[0], parts[0], table, row) && names(words.subspan(1), parts.subspan(1), table, row)) ||
           names(words, parts.subspan(1), table, row);
}

// Rows with the same key belong to one entry.
std::string key_of(const KnownMap &map, const output::Table &table, const Cells &row) {
    std::string key;
    for (const KeyPart &part : parts_of(map))
        if (const auto column = column_of(table, part.column))
            key += row[*column].text + " ";
    return key + std::to_string(ifindex_in(table, row));
}

std::set<std::string> keys_of(const KnownMap &map, const output::Table &table) {
    std::set<std::string> keys;
    for (const Cells &row : table.rows)
        keys.insert(key_of(map, table, row));
    return keys;
}

// The longest prefix that contains an address, as the programs' lookup finds it.
void keep_longest(const KnownMap &map, output::Table &table) {
    const auto parts = parts_of(map);
    const auto part = std::ranges::find(parts, KeyPart::Kind::prefix, &KeyPart::kind);
    const auto column = part == parts.end() ? std::nullopt : column_of(table, part->column);
    if (!column)
        return;
    const auto bits = [&](const Cells &row) {
        const auto prefix = parse_prefix(row[*column].text);
        return prefix ? prefix->length : 0;
    };
    int longest = 0;
    for (const Cells &row : table.rows)
        longest = std::max<int>(longest, bits(row));
    std::erase_if(table.rows, [&](const Cells &row) { return bits(row) < longest; });
}

Error none_such(const KnownMap &map, const Call &call, const Selection &selection) {
    std::string given;
    for (const std::string &word : call.more)
        given += " " + word;
    return {ErrorCode::missing,
            "map " + std::string(map.name) + " has no entry" + (given.empty() ? " of " + selection.words() : given),
            "\"podlanectl map dump " + std::string(map.name) + "\" shows all of them" +
                (parts_of(map).empty() ? "" : "; their key is " + key_words(map))};
}

} // namespace

Result<std::uint64_t> count_selected(const KnownMap &map, const Selection &selection, const World &world) {
    return keys_of(map, TRY((map.get != nullptr ? map.get : map.dump)(selection, world))).size();
}

Result<int> map_get(const Call &call, World &world) {
    const KnownMap *map = TRY(find_map(call.argument));
    const Selection selection = TRY(Selection::of_options(call));
    if (call.more.empty() && selection.selects_all() && !parts_of(*map).empty())
        return usage_error("map get needs the key of an entry of " + std::string(map->name),
                           "its key is " + key_words(*map) + ", as \"podlanectl map dump\" prints it");
    output::Table table = TRY((map->get != nullptr ? map->get : map->dump)(selection, world));
    const std::vector<KeyWord> words = TRY(read_words(call, world));
    std::erase_if(table.rows, [&](const Cells &row) { return !names(words, parts_of(*map), table, row); });
    if (std::ranges::any_of(words, [](const KeyWord &word) { return word.addr.has_value(); }))
        keep_longest(*map, table);
    if (table.rows.empty())
        return none_such(*map, call, selection);
    if (const std::size_t found = keys_of(*map, table).size(); found > 1)
        return Error{ErrorCode::missing, std::to_string(found) + " entries of map " + std::string(map->name) + " match",
                     "give more of the key: " + key_words(*map)};
    print_entries(*map, table, world);
    return 0;
}

} // namespace podlane::ctl
