// SPDX-License-Identifier: MIT
#include "loader/map_plan.hpp"

#include "loader/embedded.hpp"
#include "maps.skel.h"
#include "maps/abi/names.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace podlane {
namespace {

constexpr std::uint32_t kAddressesPerEndpoint = 4;
// Tries take memory an entry: room costs nothing. groupCIDRs has at most as many.
constexpr std::uint32_t kPrefixesPerEndpoint = 64;
constexpr std::uint32_t kUplinks = 256;
constexpr std::uint32_t kKeptPaths = 1024; // endpoints of networks with an egress route; of more, a quarter of all

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t to) { return (size + to - 1) / to * to; }

// Sizes of the kernel's structs on 64-bit machines, without debugging options.
constexpr std::uint64_t kBucket = 16;
constexpr std::uint64_t kElement = 48; // struct htab_elem, before the key
constexpr std::uint64_t kListNode = 8;
constexpr std::uint64_t kTrieNode = 40; // struct lpm_trie_node with its list node, before prefix and value
constexpr std::uint64_t kPage = 4096;

bool is_allocated_at_once(const MapFacts &facts) { return (facts.flags & BPF_F_NO_PREALLOC) == 0; }

std::uint64_t element_bytes(const MapFacts &facts) {
    return kElement + round_up(facts.key_size, 8) + round_up(facts.value_size, 8) +
           (is_allocated_at_once(facts) ? 0 : kListNode);
}

// Of the kernel's caches, the smallest that an object fits into.
std::uint64_t kmalloc_size(std::uint64_t bytes) {
    return bytes <= 96 ? 96 : bytes > 128 && bytes <= 192 ? 192 : std::bit_ceil(bytes);
}

std::uint64_t hash_bytes(const MapFacts &facts, std::uint64_t entries) {
    return std::bit_ceil(std::uint64_t{facts.max_entries}) * kBucket +
           (is_allocated_at_once(facts) ? facts.max_entries : entries) * element_bytes(facts);
}

std::uint64_t array_bytes(const MapFacts &facts) {
    const std::uint64_t values = round_up(facts.value_size, 8) * facts.max_entries;
    return (facts.flags & BPF_F_MMAPABLE) != 0 ? round_up(values, kPage) : values;
}

} // namespace

void set_map_sizes(bpf_object *object, const LoadSettings &settings) {
    const auto resize = [&](const char *name, std::uint32_t entries) {
        if (bpf_map *map = bpf_object__find_map_by_name(object, name))
            bpf_map__set_max_entries(map, entries);
    };
    resize(PODLANE_MAP_ENDPOINTS, settings.endpoints);
    resize(PODLANE_MAP_INTERFACES, settings.endpoints);
    resize(PODLANE_MAP_ADDRESSES, settings.endpoints * kAddressesPerEndpoint);
    resize(PODLANE_MAP_SOURCE_ROUTES, settings.endpoints * kAddressesPerEndpoint);
    resize(PODLANE_MAP_SOURCE_SLOTS, settings.endpoints * kAddressesPerEndpoint);
    resize(PODLANE_MAP_COUNTERS, settings.endpoints + kUplinks + 1);
    resize(PODLANE_MAP_BANDWIDTHS, settings.endpoints);
    resize(PODLANE_MAP_LIMITS, settings.endpoints * 2);
    resize(PODLANE_MAP_EXEMPT, settings.endpoints * kPrefixesPerEndpoint);
    resize(PODLANE_MAP_SOURCES, settings.endpoints * kPrefixesPerEndpoint);
    resize(PODLANE_MAP_SENDERS, settings.endpoints * kAddressesPerEndpoint * 2);
    resize(PODLANE_MAP_ISOLATION, settings.endpoints + 1);
    resize(PODLANE_MAP_GROUP_CIDRS, settings.endpoints * kPrefixesPerEndpoint);
    resize(PODLANE_MAP_PATHS, settings.paths);
    resize(PODLANE_MAP_KEPT_PATHS, std::min(settings.endpoints, std::max(settings.endpoints / 4, kKeptPaths)));
    resize(PODLANE_MAP_FLOWS, settings.paths);
    resize(PODLANE_MAP_FORWARDED, settings.paths);
}

Result<std::vector<PlannedMap>> planned_maps(const LoadSettings &settings) {
    const Owned<maps_bpf> object(maps_bpf__open(), &maps_bpf__destroy);
    if (!object)
        return load_error("reading the embedded programs", errno);
    set_map_sizes(object->obj, settings);
    std::vector<PlannedMap> all;
    const bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object->obj) {
        if (!bpf_map__is_internal(map))
            all.push_back({bpf_map__name(map),
                           {0, static_cast<std::uint32_t>(bpf_map__type(map)), bpf_map__key_size(map),
                            bpf_map__value_size(map), bpf_map__max_entries(map), bpf_map__map_flags(map)}});
    }
    return all;
}

std::uint64_t map_bytes(const MapFacts &facts, std::uint64_t entries) {
    switch (facts.type) {
    case BPF_MAP_TYPE_ARRAY:
        return array_bytes(facts);
    case BPF_MAP_TYPE_LPM_TRIE:
        return entries * (kTrieNode + facts.key_size - sizeof(std::uint32_t) + facts.value_size);
    case BPF_MAP_TYPE_RINGBUF:
        return facts.max_entries;
    case BPF_MAP_TYPE_SK_STORAGE: // the sockets' own
        return 0;
    default:
        return hash_bytes(facts, entries);
    }
}

// kernel/bpf/memalloc.c: prefill_mem_cache().
std::uint64_t reserve_bytes(const MapFacts &facts, unsigned cpus) {
    constexpr std::uint64_t kCache = 192, kSmall = 256, kPrefilled = 4;
    if (facts.type != BPF_MAP_TYPE_HASH || is_allocated_at_once(facts))
        return 0;
    const std::uint64_t element = element_bytes(facts);
    return cpus * (kCache + kmalloc_size(element) * (element <= kSmall ? kPrefilled : 1));
}

} // namespace podlane
