// SPDX-License-Identifier: MIT
// podlanectl on real maps: what it reads, what it says where they are missing, and that it changes nothing.
// podlanectl map get: one entry of each map, by its key in words; and what map dump and map list make of a selection.
#include "tests/netns/ctl_maps.hpp"

namespace podlane::ctl {
namespace {

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
    EXPECT_TRUE(has(ctl({"endpoint"}).err, "hint: there is endpoints_v9: use the podlanectl of the installed podlane"));
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

TEST_F(CtlMaps, endpoint_show_has_limits_sources_link_and_counters) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    const auto limits = open_bandwidths(root_, Access::read_write);
    ASSERT_TRUE(limits && limits->update(1, {100'000'000, 8'000'000, 0, 0}));
    const auto sources = open_allowed_sources(root_, Access::read_write);
    ASSERT_TRUE(sources && sources->update(make_allowed_source_key(1, parse_prefix("198.51.100.0/24").value()), 1));
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
    ASSERT_TRUE(networks && networks->update(network_id("blue"), blue));
    const auto addresses = open_addresses(root_, Access::read_write);
    ASSERT_TRUE(addresses &&
                addresses->update({network_id("blue"), parse_ip("192.0.2.1").value()}, {1, 1, 1400, {}, {}}));
    const auto paths = open_paths(root_, Access::read_write);
    for (std::uint16_t port = 1; port <= 40; ++port) {
        const path_key key{
            1, parse_ip("192.0.2.1").value(), parse_ip("2001:db8::1").value(), htons(port), htons(443), IPPROTO_TCP,
            {}};
        ASSERT_TRUE(paths && paths->update(key, {1, PATH_DIRECT, 0}));
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

// One entry of each map, in the maps of a test that has two of most.
class MapGet : public CtlMaps {
  protected:
    void SetUp() override {
        CtlMaps::SetUp();
        if (IsSkipped())
            return;
        create_maps();
        put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
        put_endpoint("0123456789abcdef", "web-1", "192.0.2.2", kNoSuchIfindex);
        for (const std::uint32_t ifindex : {1U, kNoSuchIfindex})
            put_of(ifindex);
        count(1, REASON_SENT_DIRECT, 6, 2048);
        for (const char *name : {"blue", "red"}) {
            network value{};
            set_field(value.name, name);
            put(&open_networks, network_id(name), value);
            put(&open_cluster_cidrs, make_cluster_cidr_key(network_id(name), parse_prefix("198.18.0.0/16").value()),
                1U);
        }
        put(&open_cluster_cidrs, make_cluster_cidr_key(network_id("blue"), parse_prefix("198.18.7.0/24").value()), 1U);
        put(&open_uplinks, 1U, uplink{{network_id("blue")}, 0});
        // Something whose other end nobody knows.
        put(&open_addresses, address_key{network_id("red"), parse_ip("192.0.2.1").value()},
            address{7, 1, 1400, {}, {}});
    }
    template <typename Table, typename K, typename V>
    void put(Result<Table> (*open)(std::string_view, Access), const K &key, const V &value) const {
        const auto map = open(root_, Access::read_write);
        ASSERT_TRUE(map && map->update(key, value)) << map->path();
    }
    void put_of(std::uint32_t ifindex) const {
        const ip_addr own = parse_ip(ifindex == 1 ? "192.0.2.1" : "192.0.2.2").value();
        put(&open_interfaces, ifindex, interface{});
        put(&open_addresses, address_key{network_id("blue"), own}, address{ifindex, 1, 1400, {}, {}});
        put(&open_bandwidths, ifindex, bandwidth{8000, 8000, 0, 0});
        put(&open_source_routes, source_route_key{ifindex, own}, source_route{});
        put(&open_senders, sender_key{4026531840, own}, ifindex);
        for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
            put(&open_limit_states, limit_key{ifindex, direction}, limit_state{});
            put(&open_exempts, make_exempt_key(ifindex, direction, parse_prefix("198.51.100.0/24").value()), 0U);
        }
        for (const char *prefix : {"198.51.100.0/24", "198.51.100.128/25"})
            put(&open_allowed_sources, make_allowed_source_key(ifindex, parse_prefix(prefix).value()), 1U);
        for (const std::uint16_t port : {80, 443})
            put(&open_paths,
                path_key{ifindex, own, parse_ip("2001:db8::1").value(), htons(17), htons(port), IPPROTO_TCP, {}},
                flow_path{1, PATH_DIRECT, 0});
        count(ifindex, REASON_HOST_SELF, 1, 60);
    }
    [[nodiscard]] Answer get(const std::string &words, bool json = false) const {
        std::vector<std::string_view> all = {"map", "get"};
        for (std::size_t at = 0; at < words.size();) {
            const std::size_t end = std::min(words.find(' ', at), words.size());
            all.push_back(std::string_view(words).substr(at, end - at));
            at = end + 1;
        }
        if (json)
            all.push_back("--json");
        return ctl(all);
    }
};

std::size_t occurrences(const std::string &text, std::string_view part) {
    std::size_t number = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
        ++number;
    return number;
}

TEST_F(MapGet, finds_the_entry_that_the_words_name) {
    struct Found {
        const char *words;
        const char *part; // of its JSON
    };
    for (const Found &found : std::initializer_list<Found>{
             {"endpoints web-0", "\"pod_name\": \"web-0\""},
             {"endpoints shop/web-1 eth0", "\"pod_name\": \"web-1\""},
             {"endpoints 192.0.2.2", "\"pod_name\": \"web-1\""},
             {"endpoints_v1 0123", "\"pod_name\": \"web-1\""},
             {"interfaces lo", "\"host_interface\": \"lo\""},
             {"interfaces 1", "\"host_interface\": \"lo\""},
             {"interfaces web-0", "\"host_interface\": \"lo\""},
             {"addresses blue 192.0.2.1", "\"network\": \"blue\""},
             {"addresses red 192.0.2.1", "\"network\": \"red\""},
             {"addresses 192.0.2.2", "\"ifindex\": 2147483632"},
             {"networks blue", "\"network\": \"blue\""},
             {"paths web-0 tcp 192.0.2.1:17 [2001:db8::1]:443", "\"peer_port\": 443"},
             {"paths 192.0.2.1:17 [2001:db8::1]:80", "\"peer_port\": 80"},
             {"counters web-0", "\"reason\": \"sent-direct\""},
             {"allowed_srcs lo 198.51.100.0/24", "\"prefix\": \"198.51.100.0/24\""},
             {"allowed_srcs lo 198.51.100.7", "\"prefix\": \"198.51.100.0/24\""},
             {"allowed_srcs lo 198.51.100.200", "\"prefix\": \"198.51.100.128/25\""},
             {"bandwidths web-0", "\"ingress_rate_bits_per_s\": 8000"},
             {"uplinks lo", "\"interface\": \"lo\""},
             {"cluster_cidr blue 198.18.7.7", "\"prefix\": \"198.18.7.0/24\""},
             {"cluster_cidr red 198.18.7.7", "\"prefix\": \"198.18.0.0/16\""},
             {"source_route 192.0.2.1", "\"source\": \"192.0.2.1\""},
             {"limit_state web-0 ingress", "\"direction\": \"ingress\""},
             {"exempt web-0 egress 198.51.100.9", "\"direction\": \"egress\""},
             {"senders 192.0.2.1", "\"ifindex\": 1"},
             {"watch", "\"watched\": \"nothing\""},
             {"paths --pod web-1 [2001:db8::1]:80", "\"peer_port\": 80"},
             {"bandwidths --pod web-1", "\"ifindex\": 2147483632"},
         }) {
        const Answer answer = get(found.words, true);
        EXPECT_EQ(answer.code, 0) << found.words << ": " << answer.err;
        EXPECT_TRUE(has(answer.out, found.part)) << found.words << ": " << answer.out;
        const bool is_counters = std::string_view(found.words).starts_with("counters"); // one for each reason
        EXPECT_EQ(occurrences(answer.out, "\n  {"), is_counters ? std::size_t{REASON_COUNT - 1} : 1U)
            << found.words << ": " << answer.out;
        EXPECT_EQ(get(found.words).code, 0) << found.words;
    }
}

TEST_F(MapGet, what_is_not_there_is_an_error) {
    for (const char *words :
         {"endpoints db-0", "interfaces 77", "addresses blue 192.0.2.9", "networks green", "paths 192.0.2.1:17 x",
          "counters 77", "allowed_srcs lo 203.0.113.1", "bandwidths 77", "uplinks eth9", "cluster_cidr 203.0.113.1",
          "source_route 192.0.2.9", "limit_state web-0 sideways", "exempt 203.0.113.1", "senders 192.0.2.9", "events 1",
          "watch 1"}) {
        const Answer answer = get(words, true);
        EXPECT_EQ(answer.code, 1) << words;
        EXPECT_EQ(answer.out, "") << words;
        EXPECT_TRUE(has(answer.err, " has no entry ")) << answer.err;
        EXPECT_TRUE(has(answer.err, "\nhint: \"podlanectl map dump ")) << answer.err;
    }
    EXPECT_TRUE(has(get("addresses 192.0.2.9").err, "; their key is NETWORK ADDRESS\n"));
}

TEST_F(MapGet, what_names_several_is_an_error) {
    const Answer answer = get("addresses 192.0.2.1");
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(has(answer.err, "2 entries of map addresses_v1 match\nhint: give more of the key: NETWORK ADDRESS\n"))
        << answer.err;
    EXPECT_TRUE(has(get("allowed_srcs lo").err, "2 entries of map allowed_srcs_v1 match"))
        << get("allowed_srcs lo").err;
    const Answer all = get("addresses");
    EXPECT_EQ(all.code, 2);
    EXPECT_TRUE(has(all.err, "map get needs the key of an entry of addresses_v1\nhint: its key is NETWORK ADDRESS"));
    EXPECT_EQ(get("pahts x").code, 1);
}

// Of each map that holds something of endpoints, dump shows those that are chosen, and list counts them.
TEST_F(MapGet, dump_and_list_select) {
    const std::map<std::string_view, std::size_t> own = {
        {"endpoints", 1},    {"interfaces", 1}, {"addresses", 1},    {"networks", 1},    {"paths", 2},
        {"allowed_srcs", 2}, {"bandwidths", 1}, {"cluster_cidr", 2}, {"exempt", 2},      {"limit_state", 2},
        {"senders", 1},      {"uplinks", 1},    {"counters", 1},     {"source_route", 1}};
    const std::string list = ctl({"map", "list", "--pod", "web-1", "--json"}).out;
    EXPECT_EQ(occurrences(list, "\"name\": "), own.size()) << list;
    for (const auto &[map, number] : own) {
        const Answer dumped = ctl({"map", "dump", map, "--pod", "web-1", "--json"});
        EXPECT_EQ(dumped.code, 0) << dumped.err;
        EXPECT_EQ(occurrences(dumped.out, "\n  {"), number) << map << dumped.out;
        EXPECT_FALSE(has(dumped.out, "web-0") || has(dumped.out, "\"192.0.2.1\"")) << map << dumped.out;
        const std::string name = "\"name\": \"" + std::string(map) + "_v";
        ASSERT_TRUE(has(list, name)) << map;
        EXPECT_TRUE(has(list.substr(list.find(name), 250), "\"entries\": " + std::to_string(number))) << map << list;
        EXPECT_EQ(ctl({"map", "dump", map, "--pod", "db-0"}).code, 1) << map;
    }
}

} // namespace
} // namespace podlane::ctl
