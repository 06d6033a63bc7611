// SPDX-License-Identifier: MIT
// podlanectl on real maps: what it reads, what it says where they are missing, and that it changes nothing.
// podlanectl map get: one entry of each map, by its key in words; and what map dump and map list make of a selection.
#include "tests/netns/ctl_maps.hpp"

namespace podlane::ctl {
namespace {

TEST_F(CtlMaps, without_maps_every_reading_command_says_what_to_do) {
    for (const char *noun : {"endpoint", "counter", "map"}) {
        const Output answer = ctl(noun);
        EXPECT_THAT(answer, complains(1, {"podlanectl: Podlane has no maps below " + root_ + "\nhint: "}));
        EXPECT_EQ(answer.out, "");
    }
    EXPECT_THAT(ctl("status"), prints(1, {"Podlane has no maps below"}));
    EXPECT_NE(access(root_.c_str(), F_OK), 0) << "looking created " << root_;
}

TEST_F(CtlMaps, without_a_bpffs_says_how_to_mount_one) {
    EXPECT_THAT(ctl("endpoint --bpffs /tmp"),
                complains(1, {"no bpffs is mounted at /tmp\nhint: mount it (mount -t bpf"}));
}

TEST_F(CtlMaps, a_single_missing_map_is_named) {
    create_maps();
    ASSERT_EQ(unlink(pin_path(root_, PODLANE_MAP_COUNTERS).c_str()), 0);
    EXPECT_THAT(ctl("counter").err, HasSubstr("map " + pin_path(root_, PODLANE_MAP_COUNTERS) + " is not there"));
    EXPECT_THAT(ctl("map"), prints(1, {"missing"}));
}

TEST_F(CtlMaps, a_map_of_another_version_is_recognised) {
    create_maps();
    create_map(kShapes[0], "endpoints_v0");
    EXPECT_THAT(ctl("map").out, HasSubstr("earlier version than this podlanectl's 1"));
    EXPECT_THAT(ctl("status"), prints(1, {"endpoints_v0: earlier version"}));

    ASSERT_EQ(rename(pin_path(root_, PODLANE_MAP_ENDPOINTS).c_str(), pin_path(root_, "endpoints_v9").c_str()), 0);
    ASSERT_EQ(unlink(pin_path(root_, "endpoints_v0").c_str()), 0);
    EXPECT_THAT(ctl("endpoint").err,
                HasSubstr("hint: there is endpoints_v9: use the podlanectl of the installed podlane"));
}

TEST_F(CtlMaps, a_map_of_another_layout_is_an_error_not_a_crash) {
    create_maps();
    ASSERT_EQ(unlink(pin_path(root_, PODLANE_MAP_ENDPOINTS).c_str()), 0);
    create_map({PODLANE_MAP_ENDPOINTS, BPF_MAP_TYPE_HASH, 4, 8}, PODLANE_MAP_ENDPOINTS);
    EXPECT_THAT(ctl("endpoint"), complains(1, {"has keys of 4 and values of 8 bytes"}));
}

TEST_F(CtlMaps, endpoint_list_shows_and_selects) {
    create_maps();
    put_endpoint("0123456789abcdef", "web-1", "192.0.2.2", kNoSuchIfindex);
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    EXPECT_EQ(ctl("endpoint").out,
              "POD         NETWORK  INTERFACE  CONTAINER          ADDRESSES    AGE  HOOK  FAST PATH\n"
              "shop/web-0  blue     lo         fedcba987654:eth0  192.0.2.1  3m12s  tcx   local\n"
              "shop/web-1  blue     cali0      0123456789ab:eth0  192.0.2.2  3m12s  tcx   local\n");
    EXPECT_THAT(ctl("endpoint --address 192.0.2.1").out, Not(HasSubstr("web-1")));
    EXPECT_THAT(ctl("endpoint --pod db-0"), complains(1, {"no endpoint matches --pod db-0"}));
}

TEST_F(CtlMaps, endpoint_show_has_limits_sources_link_and_counters) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    const auto limits = open_bandwidths(root_, Access::read_write);
    ASSERT_TRUE(limits && limits->update(1, {100'000'000, 8'000'000, 0, 0}));
    const auto sources = open_allowed_sources(root_, Access::read_write);
    ASSERT_TRUE(sources && sources->update(make_allowed_source_key(1, parse_prefix("198.51.100.0/24").value()), 1));
    count(1, REASON_SENT_DIRECT, 6, 2048);

    EXPECT_THAT(ctl("endpoint show shop/web-0"),
                prints(0, {"100 Mbit/s, burst 8 Mbit", "198.51.100.0/24", "(was set to 1400)", "sent-direct"}));
    EXPECT_THAT(ctl("endpoint show web-0 --json").out,
                has_all({"\"rate_bits_per_s\": 100000000", "\"198.51.100.0/24\"", "\"packets\": 7", "\"link\": \"",
                         "\"mode\": \"main\"", "\"egress_limit\": null"}));
}

TEST_F(CtlMaps, endpoint_show_says_when_the_interface_is_gone) {
    create_maps();
    put_endpoint("0123456789abcdef", "web-1", "192.0.2.2", kNoSuchIfindex);
    EXPECT_THAT(ctl("endpoint show web-1").out, HasSubstr("gone: no interface"));
    EXPECT_THAT(ctl("status").out, HasSubstr("endpoint shop/web-1: its interface cali0 is gone"));
}

TEST_F(CtlMaps, counter_list_sums_cpus_and_omits_zeros) {
    create_maps();
    put_endpoint("fedcba9876543210", "web-0", "192.0.2.1", 1);
    count(1, REASON_DROP_SOURCE_ADDRESS, 2, 128);
    count(kNoSuchIfindex, REASON_HOST_PATH, 8, 900); // without an endpoint
    EXPECT_THAT(ctl("counter").out,
                AllOf(HasSubstr("drop  drop-source-address        3  128 B"),
                      HasSubstr("host-path                  9  900 B"), Not(HasSubstr("sent-direct"))));
    EXPECT_THAT(ctl("counter list --all web-0").out, HasSubstr("sent-direct"));
    EXPECT_THAT(ctl("counter list web-0").out, Not(HasSubstr("host-path")));
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
    EXPECT_THAT(ctl("map"), prints(0, {"lru-hash"}));
    EXPECT_THAT(ctl("map --json").out, HasSubstr("\"entries\": 40"));

    EXPECT_THAT(ctl("map dump addresses").out, HasSubstr("blue     192.0.2.1  lo"));
    EXPECT_THAT(ctl("map dump paths_v1").out, HasSubstr("192.0.2.1:17  [2001:db8::1]:443  direct"));
    EXPECT_THAT(ctl("map dump end").out, HasSubstr("main plugin"));
    for (const Shape &shape : kShapes)
        EXPECT_THAT(ctl(std::string("map dump ") + shape.name), prints(0));
    EXPECT_THAT(ctl("map dump pahts"), complains(1, {"hint: did you mean \"paths\"? maps: endpoints, interfaces, "}));
}

TEST_F(CtlMaps, status_without_programs_is_an_error_that_names_them) {
    create_maps();
    EXPECT_THAT(ctl("status"), prints(1, {"opening program " + pin_path(root_, PODLANE_PROGRAM_FROM_POD)}));
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
    [[nodiscard]] Output get(const std::string &key) const { return ctl("map get " + key); }
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
        const Output answer = get(found.words + std::string(" --json"));
        EXPECT_THAT(answer, prints(0, {found.part})) << found.words;
        const bool is_counters = std::string_view(found.words).starts_with("counters"); // one for each reason
        EXPECT_EQ(occurrences(answer.out, "\n  {"), is_counters ? std::size_t{REASON_COUNT - 1} : 1U)
            << found.words << ": " << answer.out;
        EXPECT_EQ(get(found.words).rc, 0) << found.words;
    }
}

TEST_F(MapGet, what_is_not_there_is_an_error) {
    for (const char *key :
         {"endpoints db-0", "interfaces 77", "addresses blue 192.0.2.9", "networks green", "paths 192.0.2.1:17 x",
          "counters 77", "allowed_srcs lo 203.0.113.1", "bandwidths 77", "uplinks eth9", "cluster_cidr 203.0.113.1",
          "source_route 192.0.2.9", "limit_state web-0 sideways", "exempt 203.0.113.1", "senders 192.0.2.9", "events 1",
          "watch 1"}) {
        const Output answer = get(key + std::string(" --json"));
        EXPECT_THAT(answer, complains(1, {" has no entry ", "\nhint: \"podlanectl map dump "})) << key;
        EXPECT_EQ(answer.out, "") << key;
    }
    EXPECT_THAT(get("addresses 192.0.2.9").err, HasSubstr("; their key is NETWORK ADDRESS\n"));
}

TEST_F(MapGet, what_names_several_is_an_error) {
    EXPECT_THAT(get("addresses 192.0.2.1"),
                complains(1, {"2 entries of map addresses_v1 match\nhint: give more of the key: NETWORK ADDRESS\n"}));
    EXPECT_THAT(get("allowed_srcs lo").err, HasSubstr("2 entries of map allowed_srcs_v1 match"));
    EXPECT_THAT(get("addresses"), complains(2, {"map get needs the key of an entry of addresses_v1\n"
                                                "hint: its key is NETWORK ADDRESS"}));
    EXPECT_EQ(get("pahts x").rc, 1);
}

// Of each map that holds something of endpoints, dump shows those that are chosen, and list counts them.
TEST_F(MapGet, dump_and_list_select) {
    const std::map<std::string_view, std::size_t> own = {
        {"endpoints", 1},    {"interfaces", 1}, {"addresses", 1},    {"networks", 1},    {"paths", 2},
        {"allowed_srcs", 2}, {"bandwidths", 1}, {"cluster_cidr", 2}, {"exempt", 2},      {"limit_state", 2},
        {"senders", 1},      {"uplinks", 1},    {"counters", 1},     {"source_route", 1}};
    const std::string list = ctl("map list --pod web-1 --json").out;
    EXPECT_EQ(occurrences(list, "\"name\": "), own.size()) << list;
    for (const auto &[map, number] : own) {
        const std::string dump = "map dump " + std::string(map);
        const Output dumped = ctl(dump + " --pod web-1 --json");
        EXPECT_EQ(dumped.rc, 0) << dumped.err;
        EXPECT_EQ(occurrences(dumped.out, "\n  {"), number) << map << dumped.out;
        EXPECT_THAT(dumped.out, AllOf(Not(HasSubstr("web-0")), Not(HasSubstr("\"192.0.2.1\"")))) << map;
        const std::string name = "\"name\": \"" + std::string(map) + "_v";
        ASSERT_THAT(list, HasSubstr(name));
        EXPECT_THAT(list.substr(list.find(name), 250), HasSubstr("\"entries\": " + std::to_string(number))) << map;
        EXPECT_EQ(ctl(dump + " --pod db-0").rc, 1) << map;
    }
}

} // namespace
} // namespace podlane::ctl
