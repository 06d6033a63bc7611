// SPDX-License-Identifier: MIT
#include "tables.hpp"
#include "maps/hash.hpp"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace podlane {
namespace {

template <typename Table> Result<Table> open_table(std::string_view root, const char *name, Access access) {
    return Table::open(pin_path(root, name), access);
}

constexpr std::uint32_t kNumberBits = 32; // of the ifindex or network before the address

// The length of a prefix in a trie whose keys are a number and an address.
std::uint32_t trie_length(const Prefix &prefix) { return kNumberBits + mapped_length(prefix); }

Prefix trie_prefix(const ip_addr &addr, std::uint32_t length) {
    const std::uint32_t before = kNumberBits + mapped_length({addr, 0});
    // A prefix of IPv6 may begin like a mapped IPv4 address, and be shorter than one.
    const std::uint32_t skipped = length >= before ? before : kNumberBits;
    return {addr, static_cast<std::uint8_t>(length - skipped)};
}

// A map that cannot be opened is as a missing one; `unread` says why.
template <typename Table> Table or_none(Result<Table> opened, std::string_view name, std::vector<Unread> &unread) {
    if (opened)
        return std::move(opened).value();
    unread.push_back({name, std::move(opened).error()});
    return Table::none();
}

Result<Tables> open_each(const std::string &root, Access access, std::vector<Unread> &unread) {
    // First: the maps opened after it may be newer than it says, never older.
    const std::uint64_t generation = TRY(generation_of(root));
    return Tables{or_none(open_endpoints(root, access), PODLANE_MAP_ENDPOINTS, unread),
                  or_none(open_interfaces(root, access), PODLANE_MAP_INTERFACES, unread),
                  or_none(open_addresses(root, access), PODLANE_MAP_ADDRESSES, unread),
                  or_none(open_networks(root, access), PODLANE_MAP_NETWORKS, unread),
                  or_none(open_kept_paths(root, access), PODLANE_MAP_KEPT_PATHS, unread),
                  or_none(open_allowed_sources(root, access), PODLANE_MAP_SOURCES, unread),
                  or_none(open_bandwidths(root, access), PODLANE_MAP_BANDWIDTHS, unread),
                  or_none(open_cluster_cidrs(root, access), PODLANE_MAP_CIDRS, unread),
                  or_none(open_source_routes(root, access), PODLANE_MAP_SOURCE_ROUTES, unread),
                  or_none(open_source_slots(root, access), PODLANE_MAP_SOURCE_SLOTS, unread),
                  or_none(open_limit_states(root, access), PODLANE_MAP_LIMITS, unread),
                  or_none(open_limit_groups(root, access), PODLANE_MAP_LIMIT_GROUPS, unread),
                  or_none(open_exempts(root, access), PODLANE_MAP_EXEMPT, unread),
                  or_none(open_senders(root, access), PODLANE_MAP_SENDERS, unread),
                  or_none(open_isolations(root, access), PODLANE_MAP_ISOLATION, unread),
                  or_none(open_group_cidrs(root, access), PODLANE_MAP_GROUP_CIDRS, unread),
                  or_none(open_watches(root, access), PODLANE_MAP_WATCH, unread),
                  or_none(open_counters(root, access), PODLANE_MAP_COUNTERS, unread),
                  generation};
}

} // namespace

std::string live_directory(std::string_view root) { return std::string(root) + "/live"; }

std::string pin_path(std::string_view root, std::string_view name) {
    return live_directory(root) + "/" + std::string(name);
}

Result<Endpoints> open_endpoints(std::string_view root, Access access) {
    return open_table<Endpoints>(root, PODLANE_MAP_ENDPOINTS, access);
}
Result<Interfaces> open_interfaces(std::string_view root, Access access) {
    return open_table<Interfaces>(root, PODLANE_MAP_INTERFACES, access);
}
Result<Addresses> open_addresses(std::string_view root, Access access) {
    return open_table<Addresses>(root, PODLANE_MAP_ADDRESSES, access);
}
Result<Networks> open_networks(std::string_view root, Access access) {
    return open_table<Networks>(root, PODLANE_MAP_NETWORKS, access);
}
Result<Flows> open_flows(std::string_view root, Access access) {
    return open_table<Flows>(root, PODLANE_MAP_FLOWS, access);
}
Result<Paths> open_paths(std::string_view root, Access access) {
    return open_table<Paths>(root, PODLANE_MAP_PATHS, access);
}
Result<KeptPaths> open_kept_paths(std::string_view root, Access access) {
    return open_table<KeptPaths>(root, PODLANE_MAP_KEPT_PATHS, access);
}
Result<AllowedSources> open_allowed_sources(std::string_view root, Access access) {
    return open_table<AllowedSources>(root, PODLANE_MAP_SOURCES, access);
}
Result<Bandwidths> open_bandwidths(std::string_view root, Access access) {
    return open_table<Bandwidths>(root, PODLANE_MAP_BANDWIDTHS, access);
}
Result<Uplinks> open_uplinks(std::string_view root, Access access) {
    return open_table<Uplinks>(root, PODLANE_MAP_UPLINKS, access);
}
Result<ClusterCidrs> open_cluster_cidrs(std::string_view root, Access access) {
    return open_table<ClusterCidrs>(root, PODLANE_MAP_CIDRS, access);
}
Result<SourceRoutes> open_source_routes(std::string_view root, Access access) {
    return open_table<SourceRoutes>(root, PODLANE_MAP_SOURCE_ROUTES, access);
}
Result<SourceSlots> open_source_slots(std::string_view root, Access access) {
    return open_table<SourceSlots>(root, PODLANE_MAP_SOURCE_SLOTS, access);
}
Result<LimitStates> open_limit_states(std::string_view root, Access access) {
    return open_table<LimitStates>(root, PODLANE_MAP_LIMITS, access);
}
Result<LimitGroups> open_limit_groups(std::string_view root, Access access) {
    return open_table<LimitGroups>(root, PODLANE_MAP_LIMIT_GROUPS, access);
}
Result<Exempts> open_exempts(std::string_view root, Access access) {
    return open_table<Exempts>(root, PODLANE_MAP_EXEMPT, access);
}
Result<Senders> open_senders(std::string_view root, Access access) {
    return open_table<Senders>(root, PODLANE_MAP_SENDERS, access);
}
Result<Isolations> open_isolations(std::string_view root, Access access) {
    return open_table<Isolations>(root, PODLANE_MAP_ISOLATION, access);
}
Result<GroupCidrs> open_group_cidrs(std::string_view root, Access access) {
    return open_table<GroupCidrs>(root, PODLANE_MAP_GROUP_CIDRS, access);
}
Result<Watches> open_watches(std::string_view root, Access access) {
    return open_table<Watches>(root, PODLANE_MAP_WATCH, access);
}

// Many processes may count at once, and none may be lost.
Result<void> count_isolation_change(const Watches &watches) {
    if (!watches.exists())
        return {};
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, watches.fd(), 0);
    if (memory == MAP_FAILED)
        return system_error(ErrorCode::bpf, "mapping map " + watches.path(), errno);
    std::atomic_ref<__u32>(static_cast<watch *>(memory)->isolation_changes).fetch_add(1);
    munmap(memory, page);
    return {};
}

Result<Counters> open_counters(std::string_view root, Access access) {
    return open_table<Counters>(root, PODLANE_MAP_COUNTERS, access);
}

counters sum_of(const counter_shares &all) {
    counters total{};
    for (const counters &share : all.shares)
        for (std::size_t i = 0; i < COUNTER_REASONS; ++i) {
            total.by_reason[i].packets += share.by_reason[i].packets;
            total.by_reason[i].bytes += share.by_reason[i].bytes;
        }
    return total;
}

Result<counters> sum_of(const Counters &all, std::uint32_t ifindex) {
    return sum_of(TRY(all.find(ifindex)).value_or(counter_shares{}));
}

// Directories on a bpffs keep their inode number when they are renamed.
Result<std::uint64_t> generation_of(const std::string &root) {
    struct stat facts {};
    if (stat(live_directory(root).c_str(), &facts) == 0)
        return static_cast<std::uint64_t>(facts.st_ino);
    if (errno == ENOENT || errno == ENOTDIR)
        return Error{ErrorCode::missing, "there are no pins below " + root, {}, errno};
    return system_error(ErrorCode::bpf, "reading " + live_directory(root), errno);
}

Result<void> Tables::check_generation(const std::string &root) const {
    if (TRY(generation_of(root)) == generation)
        return {};
    return Error{ErrorCode::try_again_later, "Podlane was upgraded just now",
                 "the runtime's next attempt finds it done"};
}

bool Unread::is_replaced() const { return !map.empty() && (error.system_errno == 0 || error.system_errno == EACCES); }

Result<Tables> Tables::open(const std::string &root, Access access) {
    std::vector<Unread> unread;
    Tables tables = TRY(open_each(root, access, unread));
    if (!unread.empty())
        return std::move(unread.front().error);
    return tables;
}

std::optional<Tables> Tables::open_readable(const std::string &root, std::vector<Unread> &unread) {
    auto tables = open_each(root, Access::if_present, unread);
    if (!tables && tables.error().code != ErrorCode::missing)
        unread.push_back({{}, tables.error()});
    // Routes say which interfaces have slots: they stay for the call that can open both.
    if (tables && !unread.empty() && !tables->source_slots.exists())
        tables->source_routes = SourceRoutes::none();
    return tables ? std::optional(std::move(tables).value()) : std::nullopt;
}

std::uint32_t network_id(std::string_view name) { return fnv1a_32(name); }

std::uint32_t limit_group_number(std::uint32_t network, std::string_view name) {
    return fnv1a_32(std::to_string(network) + "/" + std::string(name)) | LIMIT_GROUP;
}

std::string_view field_text(std::span<const char> field) { return {field.data(), strnlen(field.data(), field.size())}; }

bool set_field(std::span<char> field, std::string_view text) {
    if (text.size() >= field.size())
        return false;
    std::ranges::fill(field, '\0');
    std::ranges::copy(text, field.begin());
    return true;
}

Result<endpoint_key> make_endpoint_key(std::string_view container_id, std::string_view ifname) {
    endpoint_key key{};
    if (!set_field(key.container_id, container_id))
        return Error{ErrorCode::invalid_environment,
                     "container ID of " + std::to_string(container_id.size()) + " characters: at most " +
                         std::to_string(ENDPOINT_CONTAINER_ID_SIZE - 1) + " are supported"};
    if (!set_field(key.ifname, ifname))
        return Error{ErrorCode::invalid_environment, "interface name \"" + std::string(ifname) + "\" is too long"};
    return key;
}

std::uint32_t make_prefix_value(const Prefix &prefix, bool set) {
    return (set ? std::uint32_t{PREFIX_SET} : 0U) | (is_ipv4(prefix.addr) ? 0U : std::uint32_t{PREFIX_IPV6});
}

allowed_source_key make_allowed_source_key(std::uint32_t ifindex, const Prefix &prefix) {
    return {trie_length(prefix), htonl(ifindex), masked(prefix).addr};
}

exempt_key make_exempt_key(std::uint32_t ifindex, limit_direction direction, const Prefix &prefix) {
    constexpr std::uint32_t kDirectionBits = 32;
    return {trie_length(prefix) + kDirectionBits, htonl(ifindex), htonl(direction), masked(prefix).addr};
}

cluster_cidr_key make_cluster_cidr_key(std::uint32_t network, const Prefix &prefix) {
    return {trie_length(prefix), htonl(network), masked(prefix).addr};
}

std::uint32_t network_of(const cluster_cidr_key &key) { return ntohl(key.network); }

Prefix prefix_of(const cluster_cidr_key &key) { return trie_prefix(key.addr, key.prefixlen); }

Prefix prefix_of(const exempt_key &key) { return trie_prefix(key.addr, key.prefixlen - 32); }

const std::array<ReasonText, REASON_COUNT> kReasons = {{
#define X(name, text, kind, sentence) {text, REASON_KIND_##kind, sentence},
    PODLANE_REASONS(X)
#undef X
}};

} // namespace podlane
