// podlanectl on real maps: what it reads, what it says where they are missing, and that it changes nothing.
#include "maps/abi/history.h"
#include "maps/tables.hpp"
#include "tools/podlanectl/cli.hpp"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace podlane::ctl {
namespace {

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
    {PODLANE_MAP_COUNTERS, BPF_MAP_TYPE_PERCPU_HASH, sizeof(std::uint32_t), sizeof(counters)},
    {PODLANE_MAP_SOURCES, BPF_MAP_TYPE_LPM_TRIE, sizeof(allowed_source_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_BANDWIDTHS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(bandwidth)},
    {PODLANE_MAP_UPLINKS, BPF_MAP_TYPE_HASH, sizeof(std::uint32_t), sizeof(uplink)},
    {PODLANE_MAP_CIDRS, BPF_MAP_TYPE_LPM_TRIE, sizeof(cluster_cidr_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_SOURCE_ROUTES, BPF_MAP_TYPE_HASH, sizeof(source_route_key), sizeof(source_route)},
    {PODLANE_MAP_LIMITS, BPF_MAP_TYPE_HASH, sizeof(limit_key), sizeof(limit_state)},
    {PODLANE_MAP_EXEMPT, BPF_MAP_TYPE_LPM_TRIE, sizeof(exempt_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_SENDERS, BPF_MAP_TYPE_HASH, sizeof(sender_key), sizeof(std::uint32_t)},
    {PODLANE_MAP_WATCH, BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(watch)},
    {PODLANE_MAP_EVENTS, BPF_MAP_TYPE_RINGBUF, 0, 0},
    {PODLANE_MAP_HISTORY, BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(history)},
}};

struct Answer {
    int code;
    std::string out;
    std::string err;
};

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
        LIBBPF_OPTS(bpf_map_create_opts, options);
        if (shape.type == BPF_MAP_TYPE_LPM_TRIE)
            options.map_flags = BPF_F_NO_PREALLOC;
        const bool is_history = shape.value_size == sizeof(history);
        if (is_history)
            options.map_flags = BPF_F_MMAPABLE;
        const std::uint32_t entries = shape.type == BPF_MAP_TYPE_RINGBUF ? kRingBytes : is_history ? 1 : 64;
        const Fd map(bpf_map_create(shape.type, "ctl_test", shape.key_size, shape.value_size, entries, &options));
        ASSERT_TRUE(map) << pin << ": " << std::strerror(errno);
        ASSERT_EQ(bpf_obj_pin(map.get(), pin_path(root_, pin).c_str()), 0) << pin << ": " << std::strerror(errno);
    }

    // An endpoint whose host end is the loopback device, so that its link is there.
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
        ASSERT_TRUE(map && map->put(make_endpoint_key(container, "eth0").value(), value));
    }

    void count(std::uint32_t ifindex, reason why, std::uint64_t packets, std::uint64_t bytes) const {
        const auto map = Counters::open(root_, Access::read_write);
        ASSERT_TRUE(map);
        std::vector<counters> per_cpu(possible_cpus().value());
        per_cpu.front().by_reason[why] = {packets, bytes};
        per_cpu.back().by_reason[why].packets += 1; // proves that CPUs are summed
        ASSERT_EQ(bpf_map_update_elem(map->fd(), &ifindex, per_cpu.data(), BPF_ANY), 0);
    }

    Answer ctl(std::vector<std::string_view> words) const {
        World world = real_world();
        world.bpffs = root_;
        world.style = {};
        world.err_style = {};
        char *out = nullptr, *err = nullptr;
        std::size_t out_size = 0, err_size = 0;
        world.out = open_memstream(&out, &out_size);
        world.err = open_memstream(&err, &err_size);
        const int code = run(words, world);
        std::fclose(world.out);
        std::fclose(world.err);
        Answer answer{code, out, err};
        std::free(out);
        std::free(err);
        return answer;
    }

    std::string mount_ = "/tmp/podlanectl-" + std::to_string(getpid()) + "-XXXXXX";
    std::string root_;
};

bool has(const std::string &text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(CtlMaps, without_maps_every_reading_command_says_what_to_do) {
    for (const char *noun : {"endpoint", "counter", "map"}) {
        const Answer answer = ctl({noun});
        EXPECT_EQ(answer.code, 1);
        EXPECT_EQ(answer.out, "");
        EXPECT_TRUE(has(answer.err, "podlanectl: Podlane has no maps below " + root_ + "\nhint: ")) << answer.err;
    }
    const Answer status = ctl({"status"});
    EXPECT_EQ(status.code, 1);
    EXPECT_TRUE(has(status.out, "Podlane has no maps below")) << status.out;
    EXPECT_NE(access(root_.c_str(), F_OK), 0) << "looking created " << root_;
}

TEST_F(CtlMaps, without_a_bpffs_says_how_to_mount_one) {
    const Answer answer = ctl({"endpoint", "--bpffs", "/tmp"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(has(answer.err, "no bpffs is mounted at /tmp\nhint: mount it (mount -t bpf")) << answer.err;
}

TEST_F(CtlMaps, a_single_missing_map_is_named) {
    create_maps();
    ASSERT_EQ(unlink(pin_path(root_, PODLANE_MAP_COUNTERS).c_str()), 0);
    EXPECT_TRUE(has(ctl({"counter"}).err, "map " + pin_path(root_, PODLANE_MAP_COUNTERS) + " is not there"));
    const Answer maps = ctl({"map"});
    EXPECT_EQ(maps.code, 1);
    EXPECT_TRUE(has(maps.out, "missing")) << maps.out;
}

TEST_F(CtlMaps, a_map_of_another_version_is_recognised) {
    create_maps();
    create_map(kShapes[0], "endpoints_v0");
    EXPECT_TRUE(has(ctl({"map"}).out, "earlier version than this podlanectl's 1"));
    const Answer status = ctl({"status"});
    EXPECT_EQ(status.code, 1);
    EXPECT_TRUE(has(status.out, "endpoints_v0: earlier version")) << status.out;

    ASSERT_EQ(rename(pin_path(root_, PODLANE_MAP_ENDPOINTS).c_str(), pin_path(root_, "endpoints_v9").c_str()), 0);
    ASSERT_EQ(unlink(pin_path(root_, "endpoints_v0").c_str()), 0);
    EXPECT_TRUE(has(ctl({"endpoint"}).err, "hint: there is endpoints_v9: use the podlanectl that came with"));
}

TEST_F(CtlMaps, a_map_of_another_layout_is_an_error_not_a_crash) {
    create_maps();
    ASSERT_EQ(unlink(pin_path(root_, PODLANE_MAP_ENDPOINTS).c_str()), 0);
    create_map({PODLANE_MAP_ENDPOINTS, BPF_MAP_TYPE_HASH, 4, 8}, PODLANE_MAP_ENDPOINTS);
    const Answer answer = ctl({"endpoint"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(has(answer.err, "has keys of 4 and values of 8 bytes")) << answer.err;
}

TEST_F(CtlMaps, endpoint_list_shows_and_selects) {
    create_maps();
    put_endpoint("0123456789abcdef", "web-1", "192.0.2.2", kNoSuchIfindex);
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    EXPECT_EQ(ctl({"endpoint"}).out,
              "POD         NETWORK  INTERFACE  CONTAINER          ADDRESSES    AGE  HOOK  FAST PATH\n"
              "shop/web-0  blue     lo         fedcba987654:eth0  192.0.2.1  3m12s  tcx   local\n"
              "shop/web-1  blue     cali0      0123456789ab:eth0  192.0.2.2  3m12s  tcx   local\n");
    EXPECT_FALSE(has(ctl({"endpoint", "--address", "192.0.2.1"}).out, "web-1"));
    const Answer none = ctl({"endpoint", "--pod", "db-0"});
    EXPECT_EQ(none.code, 1);
    EXPECT_TRUE(has(none.err, "no endpoint matches --pod db-0")) << none.err;
}

TEST_F(CtlMaps, endpoint_show_tells_limits_sources_link_and_counters) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    const auto limits = open_bandwidths(root_, Access::read_write);
    ASSERT_TRUE(limits && limits->put(1, {100'000'000, 8'000'000, 0, 0}));
    const auto sources = open_allowed_sources(root_, Access::read_write);
    ASSERT_TRUE(sources && sources->put(make_allowed_source_key(1, parse_prefix("198.51.100.0/24").value()), 1));
    count(1, REASON_SENT_DIRECT, 6, 2048);

    const Answer text = ctl({"endpoint", "show", "shop/web-0"});
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_TRUE(has(text.out, "100 Mbit/s, burst 8 Mbit")) << text.out;
    EXPECT_TRUE(has(text.out, "198.51.100.0/24"));
    EXPECT_TRUE(has(text.out, "(was set to 1400)"));
    EXPECT_TRUE(has(text.out, "sent-direct"));
    const Answer json = ctl({"endpoint", "show", "web-0", "--json"});
    for (const char *part : {"\"rate_bits_per_s\": 100000000", "\"198.51.100.0/24\"", "\"packets\": 7", "\"link\": \"",
                             "\"mode\": \"main\"", "\"egress_limit\": null"})
        EXPECT_TRUE(has(json.out, part)) << part << " in " << json.out;
}

TEST_F(CtlMaps, endpoint_show_says_when_the_interface_is_gone) {
    create_maps();
    put_endpoint("0123456789abcdef", "web-1", "192.0.2.2", kNoSuchIfindex);
    EXPECT_TRUE(has(ctl({"endpoint", "show", "web-1"}).out, "gone: no interface"));
    EXPECT_TRUE(has(ctl({"status"}).out, "endpoint shop/web-1: its interface cali0 is gone"));
}

TEST_F(CtlMaps, counter_list_sums_cpus_and_omits_zeros) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    count(1, REASON_DROP_SOURCE_ADDRESS, 2, 128);
    count(kNoSuchIfindex, REASON_HOST_PATH, 8, 900); // without an endpoint
    const Answer answer = ctl({"counter"});
    EXPECT_TRUE(has(answer.out, "drop  drop-source-address        3  128 B")) << answer.out;
    EXPECT_TRUE(has(answer.out, "host-path                  9  900 B")) << answer.out;
    EXPECT_FALSE(has(answer.out, "sent-direct"));
    EXPECT_TRUE(has(ctl({"counter", "list", "--all", "web-0"}).out, "sent-direct"));
    EXPECT_FALSE(has(ctl({"counter", "list", "web-0"}).out, "host-path"));
}

TEST_F(CtlMaps, map_list_counts_and_map_dump_decodes) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    const auto networks = open_networks(root_, Access::read_write);
    network blue{};
    set_field(blue.name, "blue");
    ASSERT_TRUE(networks && networks->put(network_id("blue"), blue));
    const auto addresses = open_addresses(root_, Access::read_write);
    ASSERT_TRUE(addresses && addresses->put({network_id("blue"), parse_ip("192.0.2.1").value()}, {1, 1, 1400, {}, {}}));
    const auto paths = open_paths(root_, Access::read_write);
    for (std::uint16_t port = 1; port <= 40; ++port) {
        const path_key key{
            1, parse_ip("192.0.2.1").value(), parse_ip("2001:db8::1").value(), htons(port), htons(443), IPPROTO_TCP,
            {}};
        ASSERT_TRUE(paths && paths->put(key, {1, PATH_DIRECT, 0}));
    }
    const Answer maps = ctl({"map"});
    EXPECT_EQ(maps.code, 0) << maps.err;
    EXPECT_TRUE(has(maps.out, "lru-hash")) << maps.out;
    EXPECT_TRUE(has(ctl({"map", "--json"}).out, "\"entries\": 40"));

    EXPECT_TRUE(has(ctl({"map", "dump", "addresses"}).out, "blue     192.0.2.1  lo"));
    EXPECT_TRUE(has(ctl({"map", "dump", "paths_v1"}).out, "192.0.2.1:17  [2001:db8::1]:443  direct"));
    EXPECT_TRUE(has(ctl({"map", "dump", "end"}).out, "main plugin"));
    for (const Shape &shape : kShapes)
        EXPECT_EQ(ctl({"map", "dump", shape.name}).code, 0) << shape.name;
    const Answer unknown = ctl({"map", "dump", "pahts"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_TRUE(has(unknown.err, "hint: did you mean \"paths\"? maps: endpoints, interfaces, ")) << unknown.err;
}

TEST_F(CtlMaps, status_without_programs_is_an_error_that_names_them) {
    create_maps();
    const Answer answer = ctl({"status"});
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(has(answer.out, "opening program " + pin_path(root_, PODLANE_PROGRAM_FROM_POD))) << answer.out;
}

} // namespace
} // namespace podlane::ctl
