// SPDX-License-Identifier: MIT
// All maps of Podlane on a bpffs of the test's own, as the test fills them, and podlanectl looking at them.
#pragma once

#include "maps/abi/history.h"
#include "maps/tables.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tests/harness/outcome.hpp"

#include <linux/bpf.h>
#include <sys/mount.h>

#include <ctime>

namespace podlane::ctl {

constexpr std::uint32_t kNoSuchIfindex = 0x7ffffff0;

constexpr std::uint32_t kRingBytes = 4096;

struct Shape {
    const char *name;
    bpf_map_type type;
    std::uint32_t key_size;
    std::uint32_t value_size;
};

constexpr std::array<Shape, kMapNames.size()> kShapes = {{
    {PODLANE_MAP_ENDPOINTS, BPF_MAP_TYPE_HASH, sizeof(endpoint_key), sizeof(endpoint)},
    {PODLANE_MAP_INTERFACES, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(interface)},
    {PODLANE_MAP_ADDRESSES, BPF_MAP_TYPE_HASH, sizeof(address_key), sizeof(address)},
    {PODLANE_MAP_NETWORKS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(network)},
    {PODLANE_MAP_PATHS, BPF_MAP_TYPE_LRU_HASH, sizeof(path_key), sizeof(flow_path)},
    {PODLANE_MAP_KEPT_PATHS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(kept_paths)},
    {PODLANE_MAP_FLOWS, BPF_MAP_TYPE_LRU_HASH, sizeof(flow_key), sizeof(flow)},
    {PODLANE_MAP_FORWARDED, BPF_MAP_TYPE_LRU_HASH, sizeof(flow_key), sizeof(forwarded)},
    {PODLANE_MAP_COUNTERS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(counter_shares)},
    {PODLANE_MAP_SOURCES, BPF_MAP_TYPE_LPM_TRIE, sizeof(allowed_source_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_BANDWIDTHS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(bandwidth)},
    {PODLANE_MAP_UPLINKS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(uplink)},
    {PODLANE_MAP_CIDRS, BPF_MAP_TYPE_LPM_TRIE, sizeof(cluster_cidr_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_SOURCE_ROUTES, BPF_MAP_TYPE_HASH, sizeof(source_route_key), sizeof(source_route)},
    {PODLANE_MAP_SOURCE_SLOTS, BPF_MAP_TYPE_HASH, sizeof(source_slot_key), sizeof(source_route)},
    {PODLANE_MAP_LIMITS, BPF_MAP_TYPE_HASH, sizeof(limit_key), sizeof(limit_state)},
    {PODLANE_MAP_LIMIT_GROUPS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(limit_group)},
    {PODLANE_MAP_EXEMPT, BPF_MAP_TYPE_LPM_TRIE, sizeof(exempt_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_SENDERS, BPF_MAP_TYPE_HASH, sizeof(sender_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_ISOLATION, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(isolation)},
    {PODLANE_MAP_GROUP_CIDRS, BPF_MAP_TYPE_LPM_TRIE, sizeof(allowed_source_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_WATCH, BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(watch)},
    {PODLANE_MAP_EVENTS, BPF_MAP_TYPE_RINGBUF, 0, 0},
    {PODLANE_MAP_HISTORY, BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(history)},
}};

using test::complains, test::has_all, test::Output, test::prints;

// A bpffs of its own with all maps of Podlane in it, and podlanectl looking at it.
class CtlMaps : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        ASSERT_NE(mkdtemp(mount_.data()), nullptr);
        ASSERT_EQ(mount("bpf", mount_.c_str(), "bpf", 0, nullptr), 0) << std::strerror(errno);
        root_ = mount_ + "/podlane";
    }

    void TearDown() override {
        umount2(mount_.c_str(), MNT_DETACH);
        rmdir(mount_.c_str());
    }

    void create_maps() {
        ASSERT_EQ(mkdir(root_.c_str(), 0700), 0);
        ASSERT_EQ(mkdir(live_directory(root_).c_str(), 0700), 0);
        for (const Shape &shape : kShapes)
            create_map(shape, shape.name);
    }

    void create_map(const Shape &shape, const std::string &pin) {
        struct bpf_map_create_opts options {};
        options.sz = sizeof options;
        if (shape.type == BPF_MAP_TYPE_LPM_TRIE)
            options.map_flags = BPF_F_NO_PREALLOC;
        const bool is_history = shape.value_size == sizeof(history);
        const bool has_one = shape.type == BPF_MAP_TYPE_ARRAY;
        if (is_history)
            options.map_flags = BPF_F_MMAPABLE;
        const std::uint32_t entries = shape.type == BPF_MAP_TYPE_RINGBUF ? kRingBytes : has_one ? 1 : 64;
        const Fd map(bpf_map_create(shape.type, pin.c_str(), shape.key_size, shape.value_size, entries, &options));
        ASSERT_TRUE(map) << pin << ": " << std::strerror(errno);
        ASSERT_EQ(bpf_obj_pin(map.get(), pin_path(root_, pin).c_str()), 0) << pin << ": " << std::strerror(errno);
    }

    // An endpoint whose host-side veth is the loopback device, so that its link is there.
    void put_endpoint(const char *container, const char *pod, const char *addr, std::uint32_t ifindex) const {
        endpoint value{};
        value.created_ns = (static_cast<std::uint64_t>(std::time(nullptr)) - 192) * 1'000'000'000U;
        value.ifindex = ifindex;
        value.network = network_id("blue");
        value.mtu = 1400;
        value.flags = INTERFACE_FAST_LOCAL | INTERFACE_ANTI_SPOOF;
        value.mode = ENDPOINT_MAIN;
        value.attach = ENDPOINT_TCX;
        value.address_count = 1;
        value.addresses[0] = parse_ip(addr).value();
        set_field(value.host_ifname, ifindex == 1 ? "lo" : "cali0");
        set_field(value.network_name, "blue");
        set_field(value.pod_name, pod);
        set_field(value.pod_namespace, "shop");
        const auto map = open_endpoints(root_, Access::read_write);
        ASSERT_TRUE(map && map->update(make_endpoint_key(container, "eth0").value(), value));
    }

    void count(std::uint32_t ifindex, reason why, std::uint64_t packets, std::uint64_t bytes) const {
        const auto map = open_counters(root_, Access::read_write);
        ASSERT_TRUE(map);
        counter_shares all{};
        all.shares[0].by_reason[why] = {packets, bytes};
        all.shares[COUNTER_SHARES - 1].by_reason[why].packets += 1; // proves that the shares are summed
        ASSERT_TRUE(map->update(ifindex, all));
    }

    [[nodiscard]] Output ctl(const std::string &command) const {
        const std::vector<std::string> words = test::words(command);
        World world = real_world();
        world.bpffs = root_;
        world.style = {};
        world.err_style = {};
        char *out = nullptr, *err = nullptr;
        std::size_t out_size = 0, err_size = 0;
        world.out = open_memstream(&out, &out_size);
        world.err = open_memstream(&err, &err_size);
        const int code = run(std::vector<std::string_view>(words.begin(), words.end()), world);
        std::fclose(world.out);
        std::fclose(world.err);
        Output output{code, out, err};
        std::free(out);
        std::free(err);
        return output;
    }

    std::string mount_ = "/tmp/podlanectl-" + std::to_string(getpid()) + "-XXXXXX";
    std::string root_;
};

} // namespace podlane::ctl
