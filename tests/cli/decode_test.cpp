// SPDX-License-Identifier: MIT
// Wire structs in words, and which endpoints a selection picks.
#include "loader/pins.hpp"
#include "tools/podlanectl/explain/explain.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl {
namespace {

using Words = std::vector<std::string>;

EndpointEntry web0() {
    EndpointEntry entry{};
    entry.first = make_endpoint_key("0123456789abcdef", "eth0").value();
    endpoint &value = entry.second;
    set_field(value.pod_name, "web-0");
    set_field(value.pod_namespace, "shop");
    set_field(value.host_ifname, "cali0123");
    set_field(value.network_name, "blue");
    value.address_count = 2;
    value.addresses[0] = parse_ip("192.0.2.7").value();
    value.addresses[1] = parse_ip("2001:db8::7").value();
    return entry;
}

bool picks(std::vector<std::string_view> options) {
    options.insert(options.begin(), {"endpoint", "list"});
    return Selection::of(parse(options).value()).value().matches(web0());
}

TEST(Flags, have_a_word_each) {
    EXPECT_EQ(flag_words(0), Words{});
    EXPECT_EQ(flag_words(INTERFACE_FAST_LOCAL | INTERFACE_ANTI_SPOOF | INTERFACE_LIMIT_GROUP),
              (Words{"fast-local", "anti-spoof", "limit-group"}));
    EXPECT_EQ(flag_words(~0U).size(), 32U);
}

TEST(FastPath, is_off_local_or_more) {
    EXPECT_EQ(fast_path_words(INTERFACE_ANTI_SPOOF), "off");
    EXPECT_EQ(fast_path_words(INTERFACE_FAST_LOCAL), "local");
    EXPECT_EQ(fast_path_words(INTERFACE_FAST_UPLINK), "uplink");
    EXPECT_EQ(fast_path_words(INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK), "local,uplink");
}

TEST(Reason, has_name_and_kind_also_if_a_newer_podlane_counted_it) {
    EXPECT_EQ(reason_name(REASON_DROP_SOURCE_ADDRESS), "drop-source-address");
    EXPECT_EQ(reason_kind_name(REASON_DROP_SOURCE_ADDRESS), "drop");
    EXPECT_EQ(reason_kind_name(REASON_SENT_DIRECT), "fast");
    EXPECT_EQ(reason_name(COUNTER_REASONS - 1), "reason-59");
    EXPECT_EQ(reason_kind_name(COUNTER_REASONS - 1), "unknown");
}

TEST(Enums, have_words) {
    EXPECT_EQ(mode_name(ENDPOINT_AFTER_IPAM), "after-ipam");
    EXPECT_FALSE(mode_sentence(ENDPOINT_MAIN).empty());
    EXPECT_EQ(mode_name(99), "");
    EXPECT_EQ(attach_name(ENDPOINT_CLSACT), "clsact");
    EXPECT_EQ(via_name(PATH_DIRECT), "direct");
    EXPECT_EQ(protocol_name(IPPROTO_TCP), "tcp");
    EXPECT_EQ(protocol_name(200), "200");
    EXPECT_EQ(map_type_name(9), "lru-hash");
}

TEST(Socket, has_brackets_only_with_a_port) {
    EXPECT_EQ(socket_words(parse_ip("192.0.2.1").value(), htons(80)), "192.0.2.1:80");
    EXPECT_EQ(socket_words(parse_ip("2001:db8::1").value(), htons(443)), "[2001:db8::1]:443");
    EXPECT_EQ(socket_words(parse_ip("2001:db8::1").value(), 0), "2001:db8::1");
}

TEST(AllowedPrefix, is_what_the_key_was_made_of) {
    for (const char *text : {"192.0.2.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "2001:db8::1/128"})
        EXPECT_EQ(to_string(allowed_prefix(make_allowed_source_key(7, parse_prefix(text).value()))), text);
}

TEST(MapName, carries_a_version) {
    EXPECT_EQ(split_version("endpoints_v12"), std::pair(std::string_view("endpoints"), 12U));
    EXPECT_EQ(split_version("endpoints"), std::pair(std::string_view("endpoints"), 0U));
    EXPECT_EQ(split_version("my_vlan"), std::pair(std::string_view("my_vlan"), 0U));
    EXPECT_EQ(split_version("x_v"), std::pair(std::string_view("x_v"), 0U));
}

TEST(Selection, must_match_in_each_option) {
    using Options = std::vector<std::string_view>;
    for (const Options &options :
         {Options{"--pod", "web-0"}, Options{"--pod", "shop/web-0"}, Options{"--namespace", "shop"},
          Options{"--container", "0123"}, Options{"--address", "2001:db8:0::7"}, Options{"--interface", "cali0123"},
          Options{"--network", "blue"}, Options{"--pod", "web-0", "--network", "blue"}})
        EXPECT_TRUE(picks(options)) << options.at(0) << " " << options.at(1);
    for (const Options &options :
         {Options{"--pod", "web"}, Options{"--pod", "other/web-0"}, Options{"--namespace", "sho"},
          Options{"--container", "123"}, Options{"--address", "192.0.2.8"}, Options{"--address", "::"},
          Options{"--interface", "eth0"}, Options{"--network", "red"}, Options{"--pod", "web-0", "--network", "red"}})
        EXPECT_FALSE(picks(options)) << options.at(0) << " " << options.at(1);
}

TEST(Selection, a_whole_name_is_distinguished_from_the_beginning_of_a_container_id) {
    const auto names = [](const std::string &word) { return Selection::of_word(word).names(web0()); };
    const std::string id(field_text(web0().first.container_id));
    EXPECT_TRUE(names(id));
    EXPECT_FALSE(names(id.substr(0, id.size() - 1)));
    EXPECT_TRUE(Selection::of_word(id.substr(0, id.size() - 1)).matches(web0()));
}

TEST(Selection, argument_is_any_of_pod_container_address_interface) {
    for (const char *word : {"web-0", "shop/web-0", "01234", "192.0.2.7", "2001:db8::7", "cali0123"})
        EXPECT_TRUE(picks({word})) << word;
    for (const char *word : {"blue", "shop", "192.0.2.8", "cali"})
        EXPECT_FALSE(picks({word})) << word;
}

TEST(Pod, is_named_by_its_container_if_no_pod_is_known) {
    EndpointEntry entry = web0();
    EXPECT_EQ(pod_words(entry.first, entry.second), "shop/web-0");
    set_field(entry.second.pod_namespace, "");
    EXPECT_EQ(pod_words(entry.first, entry.second), "web-0");
    set_field(entry.second.pod_name, "");
    EXPECT_EQ(pod_words(entry.first, entry.second), "0123456789ab");
}

// One lookup of an address in a trie of prefixes, as explain words it.
template <typename Key>
std::string lookup_words(step_map map, Key key, const char *addr, std::optional<std::uint32_t> value) {
    key.addr = parse_ip(addr).value();
    TracedStep looked{{TRACE_LOOKUP, map, value ? 1 : 0, sizeof key, sizeof(std::uint32_t), 0}};
    const auto *bytes = reinterpret_cast<const std::uint8_t *>(&key);
    looked.key.assign(bytes, bytes + sizeof key);
    if (value) {
        looked.value.resize(sizeof *value);
        std::memcpy(looked.value.data(), &*value, sizeof *value);
    }
    return explain_run({.steps = {looked}}, 7, {}, {}).decisions.at(0).answer;
}

TEST(Explain, says_what_a_prefix_of_a_trie_means) {
    constexpr auto kGroups = STEP_MAP_GROUP_CIDRS;
    EXPECT_EQ(lookup_words(kGroups, allowed_source_key{}, "192.0.2.1", {}), "in no prefix of a group");
    EXPECT_EQ(lookup_words(kGroups, allowed_source_key{}, "192.0.2.1", PREFIX_SET), "in a prefix of an accepted group");
    EXPECT_EQ(lookup_words(kGroups, allowed_source_key{}, "192.0.2.1", PREFIX_REFUSED),
              "in a prefix of a group that is not accepted");
    EXPECT_EQ(lookup_words(kGroups, allowed_source_key{}, "192.0.2.1", PREFIX_SET | PREFIX_IPV6),
              "in no prefix of a group");
    constexpr const char *kExempt = "in an exempt prefix: the limit does not apply";
    EXPECT_EQ(lookup_words(STEP_MAP_EXEMPT, exempt_key{}, "2001:db8::1", PREFIX_IPV6), kExempt);
    EXPECT_EQ(lookup_words(STEP_MAP_EXEMPT, exempt_key{}, "192.0.2.1", 0U), kExempt);
    EXPECT_EQ(lookup_words(STEP_MAP_EXEMPT, exempt_key{}, "192.0.2.1", PREFIX_SET), "limited");
    EXPECT_EQ(lookup_words(STEP_MAP_EXEMPT, exempt_key{}, "192.0.2.1", {}), "limited");
}

} // namespace
} // namespace podlane::ctl
