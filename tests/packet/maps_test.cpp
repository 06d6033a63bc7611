// SPDX-License-Identifier: MIT
// The flow cache: entries that conntrack confirmed lead to the fast path while they are fresh and of their own flow.
// Removing an endpoint's map entries when deletions fail.
// The memory of the maps: the formula of docs/PERFORMANCE.md beside the kernel's own accounting.
#include "loader/map_plan.hpp"
#include "loader/net/namespace.hpp"
#include "maps/clock.hpp"
#include "tests/packet/cases.hpp"

#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace podlane::packet {
namespace {

constexpr std::uint64_t kSecond = 1000000000;

// Two pods whose first packets take the slow path, and an entry of each direction of a connection between them.
class FlowCache : public PacketTest {
  protected:
    void prepare() override {
        if (!require(programs_query_conntrack(node().root())))
            GTEST_SKIP() << "this kernel's programs cannot query conntrack";
        for (Pod *pod : {&node().pod, &node().peer})
            node().put_without(*pod, INTERFACE_FIRST_DIRECT);
        node().confirm(there_);
        node().confirm(Ethernet{kHostMac, kPeerMac} / Ipv4{peer4(), pod4()} / Tcp{80, 40000, kAck});
    }
    void change(const std::function<void(flow &)> &how) {
        flow entry = require(node().flows().find(key_of(there_))).value();
        how(entry);
        require(node().flows().update(key_of(there_), entry));
    }
    void expect_ack(reason why) { expect_ends_in(node(), node().run(there_), why); }
    [[nodiscard]] std::size_t entries() { return require(node().flows().keys()).size(); }

    const Bytes there_ = from_pod() / to_peer4() / Tcp{40000, 80, kAck};
    const Bytes data_ = from_pod() / to_peer4() / Tcp{40000, 80, kAck} / Bytes(8, 1);
    const Bytes end_ = from_pod() / to_peer4() / Tcp{40000, 80, kAck | 0x01};
};

TEST_F(FlowCache, AFreshEntryIsFollowed) { expect_ack(REASON_SENT_DIRECT); }

// An LRU hash may reuse an entry for another flow while a program reads it.
TEST_F(FlowCache, AnEntryOfAnotherFlowIsNotFollowed) {
    change([](flow &entry) { ++entry.check; });
    expect_ack(REASON_HOST_UNCONFIRMED);
}

// Conntrack does not know it any more.
TEST_F(FlowCache, AnEntryThatIsOldIsConfirmedOrDeleted) {
    change([](flow &entry) { entry.confirmed_ns -= 2 * kSecond; });
    expect_ack(REASON_HOST_UNCONFIRMED);
    EXPECT_FALSE(require(node().flows().find(key_of(there_))));
    EXPECT_EQ(entries(), 1U);
}

// conntrack makes no entry of an end. The peer's answer goes the same way, but not for ever.
TEST_F(FlowCache, AnEndThatConntrackDoesNotKnowExtendsAnEntryOnce) {
    const auto age = [&](std::uint64_t by) { change([&](flow &entry) { entry.confirmed_ns -= by; }); };
    age(kSecond * 3 / 2);
    for (int i = 0; i < 2; ++i) {
        expect_ends_in(node(), node().run(end_), REASON_SENT_DIRECT);
        expect_ack(REASON_SENT_DIRECT);
        expect_ends_in(node(), node().run(data_), REASON_HOST_UNCONFIRMED);
    }
    age(kSecond);
    expect_ends_in(node(), node().run(end_), REASON_HOST_PATH);
    EXPECT_EQ(entries(), 0U);
}

TEST_F(FlowCache, TheEndOfAConnectionDeletesBothDirections) {
    ASSERT_EQ(entries(), 2U);
    change([](flow &entry) { entry.confirmed_ns -= 2 * kSecond; }); // since then conntrack may have lost its own
    expect_ends_in(node(), node().run(end_), REASON_HOST_PATH);
    EXPECT_EQ(entries(), 0U);
}

// More than are read at a time, of each type of map that is walked, while others come and go.
TEST(MapWalk, SeesEveryEntryOnce) {
    constexpr std::uint32_t kEntries = 3000;
    struct bpf_map_create_opts options {};
    options.sz = sizeof options;
    options.map_flags = BPF_F_NO_PREALLOC;
    for (const bpf_map_type type : {BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_LPM_TRIE}) {
        SCOPED_TRACE(type);
        Fd fd(bpf_map_create(type, "walk", sizeof(std::uint64_t), sizeof(std::uint64_t), 2 * kEntries,
                             type == BPF_MAP_TYPE_LRU_HASH ? nullptr : &options));
        ASSERT_TRUE(fd);
        const auto map = Map<std::uint64_t, std::uint64_t>::of(std::move(fd), "walk");
        EXPECT_TRUE(require(map.entries()).empty());
        const auto key = [](std::uint64_t number) { return (number << 32) + 32; }; // a trie's begins with its length
        for (std::uint64_t i = 0; i < kEntries; ++i)
            require(map.update(key(i), i));
        std::atomic<bool> done = false;
        std::thread others([&] {
            for (std::uint64_t i = kEntries; !done; i = i + 1 < kEntries + 500 ? i + 1 : kEntries) {
                require(map.update(key(i), i));
                require(map.remove(key(i)));
            }
        });
        std::vector<int> seen(kEntries);
        for (const auto &[found, value] : require(map.entries())) {
            EXPECT_EQ(found, key(value));
            if (value < kEntries)
                ++seen[value];
        }
        done = true;
        others.join();
        EXPECT_THAT(seen, testing::Each(1));
    }
}

using RemoveEndpoint = PacketTest;

// The kernel refuses a deletion through a descriptor that may only read.
TEST_F(RemoveEndpoint, ReportsTheFirstFailedMapAndAppendsTheOthers) {
    const Tables read_only = require(Tables::open(node().root(), Access::read_only));
    const endpoint_key key = require(make_endpoint_key(node().pod.name, "eth0"));
    const endpoint record = require(read_only.endpoints.find(key)).value();

    const Result<void> removed = erase_endpoint(read_only, record);

    ASSERT_FALSE(removed);
    EXPECT_THAT(removed.error().message,
                StartsWith("deleting from map " + pin_path(node().root(), PODLANE_MAP_ADDRESSES)));
    EXPECT_THAT(removed.error().message, HasSubstr(PODLANE_MAP_INTERFACES));
}

// An address may have a new owner by then, and so may its sockets.
TEST_F(RemoveEndpoint, WhatIsAnotherOnesStays) {
    const Tables &tables = node().tables();
    const endpoint record = require(tables.endpoints.find(require(make_endpoint_key(node().pod.name, "eth0")))).value();
    const std::uint32_t other = node().peer.ifindex;
    const address_key key{record.network, pod4()};
    address moved = require(tables.addresses.find(key)).value();
    moved.ifindex = other;
    require(tables.addresses.update(key, moved));
    const sender_key sender{require(net::own_netns()), pod4()};
    require(tables.senders.update(sender, other));

    require(erase_endpoint(tables, record));

    EXPECT_EQ(require(tables.addresses.find(key)).value().ifindex, other);
    EXPECT_EQ(require(tables.senders.find(sender)), other);
    EXPECT_FALSE(require(tables.interfaces.find(record.ifindex)));
}

using MapMemory = PacketTest;

std::uint64_t counted_by_the_kernel(const Fd &map) {
    std::ifstream file("/proc/self/fdinfo/" + std::to_string(map.get()));
    std::uint64_t bytes = 0;
    for (std::string word; file >> word;)
        if (word == "memlock:")
            file >> bytes;
    return bytes;
}

// Structs of the kernel differ by a few bytes an entry from version to version.
TEST_F(MapMemory, IsWhatTheKernelCounts) {
    const Fd endpoints(bpf_obj_get(pin_path(node().root(), PODLANE_MAP_ENDPOINTS).c_str()));
    if (counted_by_the_kernel(endpoints) > 4096 * sizeof(endpoint) / 2)
        GTEST_SKIP() << "this kernel counts entries that there could be (before Linux 6.4)";
    for (const PlannedMap &planned : require(planned_maps({}))) {
        const Fd map(bpf_obj_get(pin_path(node().root(), planned.name).c_str()));
        if (!map)
            continue; // without a pin
        const MapFacts facts = require(map_facts(map.get()));
        const bool is_counted = facts.type != BPF_MAP_TYPE_RINGBUF && facts.type != BPF_MAP_TYPE_ARRAY;
        const std::uint64_t entries = is_counted ? require(detail::keys(map.get(), planned.name)).size() : 0;
        const auto kernel = static_cast<double>(counted_by_the_kernel(map));
        EXPECT_NEAR(static_cast<double>(map_bytes(facts, entries)), kernel, kernel / 10 + 16384)
            << planned.name << " with " << entries << " entries";
    }
}

// With the 110 pods that Kubernetes allows on a node. A dual-stack pod has two entries in most maps.
std::uint32_t entries_of_a_large_node(std::string_view map) {
    constexpr std::uint32_t kPods = 110;
    return map == PODLANE_MAP_COUNTERS || map == PODLANE_MAP_KEPT_PATHS ? kPods + 2
           : map == PODLANE_MAP_UPLINKS || map == PODLANE_MAP_NETWORKS  ? 1
                                                                        : 2 * kPods;
}

TEST(MapMemoryOfALargeNode, StaysBelow64MiB) {
    std::uint64_t bytes = 0;
    for (const PlannedMap &map : require(planned_maps({})))
        bytes += map_bytes(map.facts, entries_of_a_large_node(map.name)) + reserve_bytes(map.facts, 256);
    EXPECT_GT(bytes, 30ULL << 20U);
    EXPECT_LT(bytes, 64ULL << 20U);
}

// A control group of this process alone, in a hierarchy mounted for it.
class OwnControlGroup {
  public:
    OwnControlGroup() {
        must(unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
        must(mount("bpf", "/sys/fs/bpf", "bpf", 0, nullptr) == 0);
        must(mount("none", kMount, "cgroup2", 0, nullptr) == 0);
        const bool can_account = write(std::string(kMount) + "/cgroup.subtree_control", "+memory");
        can_account_ = can_account && mkdir(path_.c_str(), 0700) == 0 && join(path_);
    }
    OwnControlGroup(const OwnControlGroup &) = delete;
    OwnControlGroup &operator=(const OwnControlGroup &) = delete;
    ~OwnControlGroup() {
        join(kMount);
        rmdir(path_.c_str());
    }
    [[nodiscard]] bool can_account() const { return can_account_; }
    // Bytes of kernel memory.
    [[nodiscard]] std::uint64_t charged() const {
        std::ifstream file(path_ + "/memory.stat");
        std::uint64_t bytes = 0;
        for (std::string word; file >> word >> bytes;)
            if (word == "kernel")
                return bytes;
        return 0;
    }

  private:
    static constexpr const char *kMount = "/mnt";
    static void must(bool done) {
        if (!done)
            throw std::runtime_error(std::string("mounting: ") + std::strerror(errno));
    }
    static bool write(const std::string &path, const std::string &text) {
        std::ofstream file(path);
        file << text << std::flush;
        return file.good();
    }
    static bool join(const std::string &group) { return write(group + "/cgroup.procs", std::to_string(getpid())); }
    const std::string path_ = std::string(kMount) + "/podlane-test-" + std::to_string(getpid());
    bool can_account_ = false;
};

void fill(const Fd &map, const PlannedMap &planned, std::uint32_t entries) {
    const Bytes value(planned.facts.value_size);
    const bool is_trie = planned.facts.type == BPF_MAP_TYPE_LPM_TRIE;
    for (std::uint32_t number = 1; number <= entries; ++number) {
        Bytes key(planned.facts.key_size);
        const std::uint32_t bits = (planned.facts.key_size - sizeof bits) * 8;
        if (is_trie)
            std::memcpy(key.data(), &bits, sizeof bits);
        std::memcpy(key.data() + (is_trie ? sizeof bits : 0), &number, sizeof number);
        require(detail::write(map.get(), planned.name, key.data(), value.data(), Write::any));
    }
}

bool has_reserve(const PlannedMap &map) {
    return map.facts.type == BPF_MAP_TYPE_HASH && (map.facts.flags & BPF_F_NO_PREALLOC) != 0;
}

// Deletes and makes again the entries of user space, by a thread that was on this CPU and may use all.
void renew(const std::string &root, const std::vector<PlannedMap> &maps, const cpu_set_t &all, int cpu) {
    cpu_set_t one{};
    CPU_SET(cpu, &one);
    for (const PlannedMap &planned : maps) {
        if (!has_reserve(planned))
            continue;
        const Fd map(bpf_obj_get(pin_path(root, planned.name).c_str()));
        for (const Bytes &key : require(detail::keys(map.get(), planned.name))) {
            ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
            ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
            require(detail::remove(map.get(), planned.name, key.data()));
        }
        fill(map, planned, entries_of_a_large_node(planned.name));
    }
}

// The same as the kernel charges it, with its reserve and what its allocators round up, also when ADDs and DELs ran on
// each of the CPUs. tests/kernels boots a kernel for 256 of them.
TEST(MapMemoryOfALargeNode, IsChargedWithLessThan64MiB) {
    const OwnControlGroup group;
    if (!group.can_account())
        GTEST_SKIP() << "the memory of processes is accounted by another hierarchy of control groups";
    const std::uint64_t before = group.charged();
    const std::string root = "/sys/fs/bpf/podlane";
    require(ensure_loaded(root, {}));
    const std::vector<PlannedMap> maps = require(planned_maps({}));
    for (const PlannedMap &planned : maps) {
        const Fd map(bpf_obj_get(pin_path(root, planned.name).c_str()));
        if (map && planned.facts.type != BPF_MAP_TYPE_ARRAY && planned.facts.type != BPF_MAP_TYPE_RINGBUF)
            fill(map, planned, entries_of_a_large_node(planned.name));
    }
    const std::uint64_t charged = group.charged() - before;
    cpu_set_t all{};
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_COUNT(&all); ++cpu)
        renew(root, maps, all, cpu);
    const std::uint64_t renewed = group.charged() - before;
    std::cout << "charged on " << require(possible_cpus()) << " CPUs: " << (charged >> 10U) << " KiB, then "
              << (renewed >> 10U) << " KiB\n";
    EXPECT_GT(charged, 30ULL << 20U);
    EXPECT_LT(renewed, 64ULL << 20U);
}

} // namespace
} // namespace podlane::packet
