// SPDX-License-Identifier: MIT
#include "map.hpp"

#include "abi/names.h"
#include "few_cpus.hpp"
#include "file.hpp"
#include "map_name.hpp"

#include <bpf/libbpf.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_set>

namespace podlane {

Result<MapFacts> map_facts(int fd) {
    const bpf_map_info info = TRY(map_info(fd));
    return MapFacts{info.id, info.type, info.key_size, info.value_size, info.max_entries, info.map_flags};
}

Result<unsigned> possible_cpus() {
    const int count = libbpf_num_possible_cpus();
    if (count < 0)
        return system_error(ErrorCode::bpf, "counting possible CPUs", -count);
    return static_cast<unsigned>(count);
}

Result<unsigned> cpu_numbers() {
    const std::string path = "/sys/devices/system/cpu/possible"; // "0-3,8-11"
    const std::string text = TRY(read_file(path));
    const std::size_t last = text.find_last_of("-,") + 1; // 0 if there is one CPU
    unsigned highest = 0;
    if (std::from_chars(text.data() + last, text.data() + text.size(), highest).ec != std::errc())
        return Error{ErrorCode::io_failure, path + " says \"" + text + "\", where numbers of CPUs are expected"};
    return highest + 1;
}

namespace detail {
namespace {

constexpr int kMemoryAttempts = 1000;
constexpr std::uint32_t kBatch = 512; // entries that are read at a time

constexpr const char *kReplaces = "podlanectl repair replaces it by a map, and restores the pods' entries";

// Of networks, not of endpoints.
bool has_fixed_size(std::string_view path) {
    constexpr std::array<std::string_view, 4> kFixed = {PODLANE_MAP_NETWORKS, PODLANE_MAP_UPLINKS, PODLANE_MAP_CIDRS,
                                                        PODLANE_MAP_LIMIT_GROUPS};
    return std::ranges::any_of(kFixed, [&](std::string_view name) { return path.ends_with(name); });
}

} // namespace

Fd open_pin(const std::string &path, bool read_only) {
    struct bpf_obj_get_opts options {};
    options.sz = sizeof options;
    options.file_flags = read_only ? BPF_F_RDONLY : 0;
    return Fd(bpf_obj_get_opts(path.c_str(), &options));
}

Result<bool> is_map(const Fd &fd) {
    std::array<char, 64> kind{};
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    if (readlink(path.c_str(), kind.data(), kind.size() - 1) < 0)
        return system_error(ErrorCode::bpf, "reading " + path, errno);
    return std::string_view(kind.data()).ends_with("bpf-map");
}

Result<Fd> open_map(const std::string &path, std::uint32_t key_size, std::uint32_t value_size, Access access) {
    Fd fd = open_pin(path, access == Access::read_only);
    if (!fd) {
        const int error = errno;
        const bool is_missing = error == ENOENT || error == ENOTDIR;
        if (is_missing && access == Access::if_present)
            return fd;
        if (is_missing)
            return Error{ErrorCode::missing, "map " + path + " is missing",
                         "no pod was set up since the node booted, or the bpffs was unmounted", error};
        Error refused = system_error(ErrorCode::bpf, "opening map " + path, error);
        if (error == EACCES && access != Access::read_only)
            refused.hint = std::string(kReplaces) + "; unless a security module refuses it";
        return refused;
    }
    const bpf_map_info facts = TRY(map_info(fd.get()));
    if (facts.key_size != key_size || facts.value_size != value_size) {
        if (!TRY(is_map(fd))) // the facts are a program's then
            return Error{ErrorCode::bpf, path + " is not a map", kReplaces};
        return Error{ErrorCode::bpf,
                     "map " + path + " has keys of " + std::to_string(facts.key_size) + " and values of " +
                         std::to_string(facts.value_size) + " bytes, this binary expects " + std::to_string(key_size) +
                         " and " + std::to_string(value_size),
                     std::string(kReplaces) + "; or use the build of Podlane that created it"};
    }
    if (!is_name_of(facts.name, std::string_view(path).substr(path.rfind('/') + 1)))
        return Error{ErrorCode::bpf, "map " + path + " is another one, " + facts.name, kReplaces};
    return fd;
}

Result<void> write(int fd, const std::string &path, const void *key, const void *value, Write how) {
    const std::uint64_t flags = how == Write::any ? BPF_ANY : how == Write::must_not_exist ? BPF_NOEXIST : BPF_EXIST;
    int error = 0;
    const OnFewCpus few;
    // Maps without preallocation take entries from a reserve that the kernel refills asynchronously: ENOMEM is
    // transient.
    for (int attempt = 0; attempt < kMemoryAttempts; ++attempt) {
        if (bpf_map_update_elem(fd, key, value, flags) == 0)
            return {};
        error = errno;
        if (error != ENOMEM)
            break;
        sched_yield();
    }
    if (error == E2BIG || error == ENOSPC)
        return Error{ErrorCode::map_full, "map " + path + " is full",
                     has_fixed_size(path)
                         ? "its size is fixed: remove networks, ranges or limit groups that are not needed"
                         : "podlanectl gc removes endpoints that are gone; else load the programs with a larger "
                           "\"maxEndpoints\" (a limit group counts as an endpoint)",
                     error};
    if (error == EEXIST)
        return Error{ErrorCode::already_exists, "map " + path + " holds this key already", {}, error};
    return system_error(ErrorCode::bpf, "writing map " + path, error);
}

Result<bool> find(int fd, const std::string &path, const void *key, void *value) {
    if (fd < 0)
        return false;
    if (bpf_map_lookup_elem(fd, key, value) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    return system_error(ErrorCode::bpf, "reading map " + path, errno);
}

Result<bool> remove(int fd, const std::string &path, const void *key) {
    if (fd < 0)
        return false;
    const OnFewCpus few;
    if (bpf_map_delete_elem(fd, key) == 0)
        return true;
    if (errno == ENOENT)
        return false;
    Error refused = system_error(ErrorCode::bpf, "deleting from map " + path, errno);
    if (refused.system_errno == EINVAL) // the entries of an array stay
        refused.hint = kReplaces;
    return refused;
}

Result<bool> any_key(int fd, const std::string &path, const std::function<bool(const Bytes &)> &wanted) {
    if (fd < 0)
        return false;
    const MapFacts facts = TRY(map_facts(fd));
    // If the current key is deleted, the kernel restarts at the first one: the walk is bounded.
    const std::uint64_t limit = std::uint64_t{4} * facts.max_entries + 64;
    Bytes next(facts.key_size);
    Bytes previous;
    for (std::uint64_t step = 0; step < limit; ++step) {
        if (bpf_map_get_next_key(fd, previous.empty() ? nullptr : previous.data(), next.data()) != 0) {
            if (errno == ENOENT)
                return false;
            return system_error(ErrorCode::bpf, "walking map " + path, errno);
        }
        if (wanted(next))
            return true;
        previous = next;
    }
    return false;
}

Result<std::vector<Bytes>> keys(int fd, const std::string &path) {
    std::vector<Bytes> found;
    std::unordered_set<std::string_view> seen; // views into `found`, whose buffers stay where they are
    const auto keep = [&](const Bytes &key) {
        if (!seen.contains({reinterpret_cast<const char *>(key.data()), key.size()})) {
            const Bytes &kept = found.emplace_back(key);
            seen.insert({reinterpret_cast<const char *>(kept.data()), kept.size()});
        }
        return false;
    };
    TRY(any_key(fd, path, keep));
    return found;
}

Result<void> each_entry(int fd, const std::string &path, const std::function<void(const void *, const void *)> &take) {
    if (fd < 0)
        return {};
    const MapFacts facts = TRY(map_facts(fd));
    if (facts.type != BPF_MAP_TYPE_HASH && facts.type != BPF_MAP_TYPE_LRU_HASH) {
        Bytes value(facts.value_size);
        for (const Bytes &key : TRY(keys(fd, path)))
            if (TRY(find(fd, path, key.data(), value.data())))
                take(key.data(), value.data());
        return {};
    }
    // One bucket of the hash table after the other: what comes or goes meanwhile moves no other entry.
    std::uint32_t room = std::min(kBatch, facts.max_entries), next = 0;
    std::uint32_t *from = nullptr; // the first bucket
    Bytes some_keys, values;
    for (bool more = true; more;) {
        some_keys.resize(std::size_t{room} * facts.key_size);
        values.resize(std::size_t{room} * facts.value_size);
        std::uint32_t count = room;
        if (bpf_map_lookup_batch(fd, from, &next, some_keys.data(), values.data(), &count, nullptr) != 0) {
            if (errno == ENOSPC && room < facts.max_entries) { // for the next bucket
                room *= 2;
                continue;
            }
            if (errno != ENOENT)
                return system_error(ErrorCode::bpf, "reading map " + path, errno);
            more = false;
        }
        from = &next;
        for (std::uint32_t i = 0; i < count; ++i)
            take(&some_keys[std::size_t{i} * facts.key_size], &values[std::size_t{i} * facts.value_size]);
    }
    return {};
}

} // namespace detail
} // namespace podlane
