// SPDX-License-Identifier: MIT
// Reads pinned maps of a live node: read-only descriptors, tolerates entries that vanish while it reads, and says
// clearly what is missing.
#pragma once

#include "maps/fd.hpp"
#include "maps/map.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::ctl {

// An opened map of any layout.
struct OpenMap {
    Fd fd;
    std::string path;
    MapFacts facts;
};

Result<OpenMap> open_pinned_map(const std::string &path);
// Opens root/live/`name`; says which step is missing (bpffs, live directory, this map) and what to do, and refuses
// a layout this binary does not know.
Result<OpenMap> open_live_map(const std::string &root, std::string_view name, std::size_t key_size,
                              std::size_t value_size);

// Every key once, even if entries come and go meanwhile.
Result<std::vector<Bytes>> walk_keys(const OpenMap &map);
// Same, counted.
Result<std::uint64_t> count_entries(const OpenMap &map);
// Memory the kernel accounts to the map, in bytes; 0 if unknown.
std::uint64_t map_memory(const OpenMap &map);

// All entries of a live map whose values are the same on every CPU.
template <typename K, typename V>
Result<std::vector<std::pair<K, V>>> read_map(const std::string &root, std::string_view name) {
    OpenMap map = TRY(open_live_map(root, name, sizeof(K), sizeof(V)));
    return Map<K, V>::of(std::move(map.fd), std::move(map.path)).entries();
}

// That nothing is pinned there, or something else than Podlane's, as the next attempt finds as well. Other errors say
// nothing about it.
bool is_no_object(const Error &error);
// As read_map(); such a map has no entries.
template <typename K, typename V>
Result<std::vector<std::pair<K, V>>> read_map_if_there(const std::string &root, std::string_view name) {
    auto entries = read_map<K, V>(root, name);
    return entries || !is_no_object(entries.error()) ? std::move(entries) : std::vector<std::pair<K, V>>{};
}

// Ok if `root`/live exists; otherwise the reason and the remedy.
Result<void> check_live_directory(const std::string &root);
// false: it does not exist. A failed look is no answer.
Result<bool> is_live(const std::string &root);
// The pins directly in `directory`, sorted by name; empty if it does not exist.
Result<std::vector<std::string>> pin_names(const std::string &directory);

} // namespace podlane::ctl
