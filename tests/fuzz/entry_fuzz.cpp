// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what says in words what a map holds: anybody may have written it. `podlanectl map dump` reads
// each of its maps, whatever they are, from a kernel whose maps hold those bytes.
//
// The program is linked with --wrap for each of libbpf's functions that read maps, and without netlink. The first byte
// chooses the map to dump, the second a selection. For each map that is then read come the number of its entries, and
// these: key and value, on every CPU. When the bytes end, they begin again: few of them fill every field of an entry.
#include "loader/map_plan.hpp"
#include "maps/printable.hpp"
#include "tools/podlanectl/cli/world.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/map.hpp"

#include "tests/fuzz/require.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

namespace {

using namespace podlane;

struct HeldMap {
    MapFacts facts;
    std::vector<Bytes> keys, values;
};

class Kernel {
  public:
    explicit Kernel(std::span<const std::uint8_t> data) : data_(data) {}

    Bytes take(std::size_t size) {
        Bytes taken(size);
        for (std::uint8_t &byte : taken)
            byte = data_[taken_++ % data_.size()];
        return taken;
    }
    int open(std::string_view path) {
        constexpr std::uint8_t kMostEntries = 4;
        const std::string_view name = path.substr(path.rfind('/') + 1);
        const auto planned = std::ranges::find(plan(), name, &PlannedMap::name);
        require(planned != plan().end());
        HeldMap held{planned->facts, {}, {}};
        held.facts.max_entries = kMostEntries; // by which its readers choose how much to read at a time
        for (int left = take(1)[0] % (kMostEntries + 1); left > 0; --left) {
            held.keys.push_back(take(held.facts.key_size));
            held.values.push_back(take(held.facts.value_size));
        }
        const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        require(fd >= 0);
        maps_[fd] = std::move(held);
        return fd;
    }
    const HeldMap &at(int fd) const { return maps_.at(fd); }

  private:
    static const std::vector<PlannedMap> &plan() {
        static const std::vector<PlannedMap> all = *planned_maps({});
        return all;
    }

    std::span<const std::uint8_t> data_;
    std::size_t taken_ = 0;
    std::map<int, HeldMap> maps_{};
};
Kernel *kernel = nullptr;

int fail(int error) {
    errno = error;
    return -1;
}

// The entry of a key, or their number.
std::size_t find(const HeldMap &map, const void *key) {
    const auto is_key = [&](const Bytes &one) { return std::memcmp(one.data(), key, one.size()) == 0; };
    return static_cast<std::size_t>(std::ranges::find_if(map.keys, is_key) - map.keys.begin());
}

void check_lines(const std::string &text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        require(is_printable(std::string_view(text).substr(at, end - at)));
        at = end + 1;
    }
}

void check_dump(const ctl::KnownMap &map, const ctl::Selection &selection) {
    ctl::World world;
    world.bpffs = "/fuzz";
    if (const auto table = map.dump(selection, world)) {
        check_lines(output::table_text(*table, world.style));
        check_lines(output::record_text(*table, world.style));
        require(!output::json_text(output::table_value(*table)).empty());
    }
    (void)ctl::count_selected(map, selection, world);
}

void check_words(std::uint32_t number) {
    require(!ctl::reason_name(number).empty());
    ctl::reason_kind_name(number);
    ctl::reason_sentence(number);
    flag_words(number);
    require(!ctl::fast_path_words(number).empty());
    ctl::via_name(number);
    ctl::map_type_name(number);
    require(!ctl::protocol_name(static_cast<std::uint8_t>(number)).empty());
    mode_name(static_cast<std::uint8_t>(number));
    ctl::mode_sentence(static_cast<std::uint8_t>(number));
    attach_name(static_cast<std::uint8_t>(number));
}

} // namespace

extern "C" { // NOLINTBEGIN(bugprone-reserved-identifier): ld(1) --wrap

int __wrap_bpf_obj_get_opts(const char *path, const struct bpf_obj_get_opts *) { return kernel->open(path); }

// podlanectl looks up whether a pin is a map.
ssize_t __wrap_readlink(const char *, char *into, std::size_t size) {
    constexpr std::string_view kMap = "anon_inode:bpf-map";
    return static_cast<ssize_t>(kMap.copy(into, size));
}

int __wrap_bpf_obj_get_info_by_fd(int fd, void *into, __u32 *size) {
    const MapFacts &facts = kernel->at(fd).facts;
    bpf_map_info info{};
    info.type = facts.type;
    info.key_size = facts.key_size;
    info.value_size = facts.value_size;
    info.max_entries = facts.max_entries;
    info.map_flags = facts.flags;
    std::memcpy(into, &info, std::min<std::size_t>(*size, sizeof info));
    return 0;
}

int __wrap_bpf_map_get_next_key(int fd, const void *key, void *next) {
    const HeldMap &map = kernel->at(fd);
    const std::size_t at = key == nullptr ? 0 : find(map, key) + 1;
    if (at >= map.keys.size())
        return fail(ENOENT);
    std::ranges::copy(map.keys[at], static_cast<std::uint8_t *>(next));
    return 0;
}

int __wrap_bpf_map_lookup_elem(int fd, const void *key, void *value) {
    const HeldMap &map = kernel->at(fd);
    const std::size_t at = find(map, key);
    if (at == map.keys.size())
        return fail(ENOENT);
    std::ranges::copy(map.values[at], static_cast<std::uint8_t *>(value));
    return 0;
}

int __wrap_bpf_map_lookup_batch(int fd, void *, void *, void *keys, void *values, __u32 *count,
                                const struct bpf_map_batch_opts *) {
    const HeldMap &map = kernel->at(fd);
    *count = std::min(*count, static_cast<__u32>(map.keys.size()));
    for (std::size_t i = 0; i < *count; ++i) {
        std::ranges::copy(map.keys[i], static_cast<std::uint8_t *>(keys) + i * map.facts.key_size);
        std::ranges::copy(map.values[i], static_cast<std::uint8_t *>(values) + i * map.facts.value_size);
    }
    return fail(ENOENT); // that was all
}

int __wrap_nl_connect(struct nl_sock *, int) { return -1; }

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size == 0)
        return 0;
    Kernel held({data, size});
    kernel = &held;
    const std::span<const ctl::KnownMap> maps = ctl::known_maps();
    const ctl::KnownMap &map = maps[held.take(1)[0] % maps.size()];
    const bool selects = held.take(1)[0] % 2 != 0;
    std::uint32_t number = 0;
    if (size >= sizeof number)
        std::memcpy(&number, data, sizeof number);
    check_words(number);
    check_dump(map, selects ? ctl::Selection::of_word("a") : ctl::Selection{});
    return 0;
}
} // NOLINTEND(bugprone-reserved-identifier)
