// SPDX-License-Identifier: MIT
// Map<K, V>: typed access to a pinned BPF map. "Missing" is a value, "full" an error that names the map.
#pragma once

#include "fd.hpp"
#include "result.hpp"

#include <bpf/bpf.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace podlane {

enum class Access {
    read_only,
    read_write,
    if_present, // to write; a missing pin is an empty map, which takes no entries
};

// The kernel's description of a map.
struct MapFacts {
    std::uint32_t id = 0;
    std::uint32_t type = 0; // enum bpf_map_type
    std::uint32_t key_size = 0;
    std::uint32_t value_size = 0;
    std::uint32_t max_entries = 0;
    std::uint32_t flags = 0;
};

enum class Write { any, must_not_exist, must_exist };

using Bytes = std::vector<std::uint8_t>;

namespace detail {
// No descriptor, and errno, if it cannot be opened. A pin of another kind than a map is opened, too.
Fd open_pin(const std::string &path, bool read_only);
Result<bool> is_map(const Fd &fd); // the facts of a program would be read as a map's
// Opens the pin `path`; an error if its sizes are not the ones this binary was built with. Returns no descriptor if the
// pin is missing and `access` is if_present.
Result<Fd> open_map(const std::string &path, std::uint32_t key_size, std::uint32_t value_size, Access access);
Result<void> write(int fd, const std::string &path, const void *key, const void *value, Write how);
Result<bool> find(int fd, const std::string &path, const void *key, void *value);
Result<bool> remove(int fd, const std::string &path, const void *key);
// Every key once, even if entries come and go meanwhile.
Result<std::vector<Bytes>> keys(int fd, const std::string &path);
// Whether `wanted` is true of a key; stops at the first one.
Result<bool> any_key(int fd, const std::string &path, const std::function<bool(const Bytes &)> &wanted);
// Calls `take` with every key once, and a copy of its value.
Result<void> each_entry(int fd, const std::string &path, const std::function<void(const void *, const void *)> &take);
} // namespace detail

Result<MapFacts> map_facts(int fd);

// Number of CPUs a per-CPU map holds values for (possible CPUs, not online ones).
Result<unsigned> possible_cpus();
// One more than the highest number of such a CPU: there may be gaps.
Result<unsigned> cpu_numbers();

// A map pinned at `path`; owns its descriptor. K and V are the ABI structs.
template <typename K, typename V> class Map {
    static_assert(std::is_trivially_copyable_v<K> && std::is_trivially_copyable_v<V>);

  public:
    static Result<Map> open(std::string path, Access access) {
        Fd fd = TRY(detail::open_map(path, sizeof(K), sizeof(V), access));
        return Map(std::move(fd), std::move(path));
    }
    // Takes over a descriptor whose sizes are known to be right.
    static Map of(Fd fd, std::string path) { return Map(std::move(fd), std::move(path)); }
    static Map none() { return Map(Fd{}, {}); } // as of a missing pin

    [[nodiscard]] Result<std::optional<V>> find(const K &key) const {
        V value{};
        if (!TRY(detail::find(fd_.get(), path_, &key, &value)))
            return std::optional<V>{};
        return std::optional<V>{value};
    }

    // Inserts or overwrites. A full map is an error with ErrorCode::map_full.
    [[nodiscard]] Result<void> update(const K &key, const V &value) const { return write(key, value, Write::any); }
    // An existing key is an error with ErrorCode::already_exists.
    [[nodiscard]] Result<void> insert(const K &key, const V &value) const {
        return write(key, value, Write::must_not_exist);
    }
    // A missing key is an error.
    [[nodiscard]] Result<void> replace(const K &key, const V &value) const {
        return write(key, value, Write::must_exist);
    }

    // False if the key was missing.
    [[nodiscard]] Result<bool> remove(const K &key) const { return detail::remove(fd_.get(), path_, &key); }

    // A copy of all entries; entries that come or go meanwhile may or may not be in it.
    [[nodiscard]] Result<std::vector<std::pair<K, V>>> entries() const {
        std::vector<std::pair<K, V>> all;
        TRY(detail::each_entry(fd_.get(), path_, [&](const void *key, const void *value) {
            std::pair<K, V> &entry = all.emplace_back();
            std::memcpy(&entry.first, key, sizeof(K));
            std::memcpy(&entry.second, value, sizeof(V));
        }));
        return all;
    }

    // Whether `wanted` is true of a key; stops at the first one.
    template <typename Wanted> [[nodiscard]] Result<bool> any_key(Wanted wanted) const {
        return detail::any_key(fd_.get(), path_, [&](const Bytes &bytes) {
            K key;
            std::memcpy(&key, bytes.data(), sizeof(K));
            return wanted(key);
        });
    }

    [[nodiscard]] Result<std::vector<K>> keys() const {
        std::vector<K> all;
        for (const Bytes &bytes : TRY(detail::keys(fd_.get(), path_)))
            std::memcpy(&all.emplace_back(), bytes.data(), sizeof(K));
        return all;
    }

    [[nodiscard]] bool exists() const { return static_cast<bool>(fd_); }
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const std::string &path() const { return path_; }

  private:
    [[nodiscard]] Result<void> write(const K &key, const V &value, Write how) const {
        return detail::write(fd_.get(), path_, &key, &value, how);
    }
    Map(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
    Fd fd_;
    std::string path_;
};

} // namespace podlane
