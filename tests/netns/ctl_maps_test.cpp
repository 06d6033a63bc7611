// SPDX-License-Identifier: MIT
// podlanectl on real maps: what it reads, what it says where they are missing, and that it changes nothing.
#include "tests/netns/ctl_maps.hpp"

#include <unistd.h>

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

TEST_F(CtlMaps, endpoint_show_tells_limits_sources_link_and_counters) {
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

} // namespace
} // namespace podlane::ctl
