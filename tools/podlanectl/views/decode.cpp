// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/decode.hpp"

#include "loader/net/link.hpp"
#include "maps/entries.hpp"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace podlane::ctl {
namespace {

struct Word {
    std::uint32_t number;
    std::string_view text;
};

constexpr std::array<Word, 12> kMapTypes = {{{BPF_MAP_TYPE_HASH, "hash"},
                                             {BPF_MAP_TYPE_ARRAY, "array"},
                                             {BPF_MAP_TYPE_PERCPU_HASH, "percpu-hash"},
                                             {BPF_MAP_TYPE_PERCPU_ARRAY, "percpu-array"},
                                             {BPF_MAP_TYPE_LRU_HASH, "lru-hash"},
                                             {BPF_MAP_TYPE_LRU_PERCPU_HASH, "lru-percpu-hash"},
                                             {BPF_MAP_TYPE_LPM_TRIE, "lpm-trie"},
                                             {BPF_MAP_TYPE_PERF_EVENT_ARRAY, "perf-event-array"},
                                             {BPF_MAP_TYPE_DEVMAP_HASH, "devmap-hash"},
                                             {BPF_MAP_TYPE_HASH_OF_MAPS, "hash-of-maps"},
                                             {BPF_MAP_TYPE_SK_STORAGE, "sk-storage"},
                                             {BPF_MAP_TYPE_RINGBUF, "ringbuf"}}};

constexpr std::array<Word, 7> kProtocols = {{{IPPROTO_TCP, "tcp"},
                                             {IPPROTO_UDP, "udp"},
                                             {IPPROTO_ICMP, "icmp"},
                                             {IPPROTO_ICMPV6, "icmp6"},
                                             {IPPROTO_SCTP, "sctp"},
                                             {IPPROTO_ESP, "esp"},
                                             {IPPROTO_GRE, "gre"}}};

std::string_view word_of(std::span<const Word> words, std::uint32_t number) {
    const auto found = std::ranges::find(words, number, &Word::number);
    return found == words.end() ? std::string_view{} : found->text;
}

} // namespace

std::string fast_path_words(std::uint32_t interface_flags) {
    const bool local = (interface_flags & INTERFACE_FAST_LOCAL) != 0;
    const bool uplink = (interface_flags & INTERFACE_FAST_UPLINK) != 0;
    return local && uplink ? "local,uplink" : local ? "local" : uplink ? "uplink" : "off";
}

std::string_view mode_sentence(std::uint8_t endpoint_mode) {
    static constexpr std::array<Word, 3> kModes = {
        {{ENDPOINT_MAIN, "main plugin: Podlane made the interface and requested addresses from the IPAM plugin"},
         {ENDPOINT_AFTER_IPAM, "chained after IPAM: Podlane made the interface for the addresses it was given"},
         {ENDPOINT_AFTER_MAIN, "chained after another plugin, which made the interface"}}};
    return word_of(kModes, endpoint_mode);
}

std::string_view kind_name(reason_kind kind) {
    static constexpr std::array<Word, 6> kKinds = {{{REASON_KIND_PASS, "pass"},
                                                    {REASON_KIND_FAST, "fast"},
                                                    {REASON_KIND_HOST, "host"},
                                                    {REASON_KIND_ANSWER, "answer"},
                                                    {REASON_KIND_DROP, "drop"},
                                                    {REASON_KIND_MOVED, "moved"}}};
    return word_of(kKinds, kind);
}

std::string reason_name(std::size_t reason) {
    return reason < kReasons.size() ? std::string(kReasons[reason].name) : "reason-" + std::to_string(reason);
}

std::string_view reason_kind_name(std::size_t reason) {
    return reason < kReasons.size() ? kind_name(kReasons[reason].kind) : "unknown";
}

std::string_view reason_sentence(std::size_t reason) {
    return reason < kReasons.size() ? kReasons[reason].sentence : "counted by a podlane newer than this podlanectl";
}

std::string protocol_name(std::uint8_t protocol) {
    const std::string_view name = word_of(kProtocols, protocol);
    return name.empty() ? std::to_string(protocol) : std::string(name);
}

std::string_view via_name(std::uint32_t path_via) {
    static constexpr std::array<Word, 4> kVias = {
        {{PATH_HOST, "host"}, {PATH_INIT, "host"}, {PATH_DIRECT, "direct"}, {PATH_UPLINK, "uplink"}}};
    return word_of(kVias, path_via);
}

std::string socket_words(const ip_addr &addr, std::uint16_t be_port) {
    if (be_port == 0)
        return to_string(addr);
    const std::string host = is_ipv4(addr) ? to_string(addr) : "[" + to_string(addr) + "]";
    return host + ":" + std::to_string(ntohs(be_port));
}

Prefix allowed_prefix(const allowed_source_key &key) {
    constexpr std::uint32_t kBefore = 32; // the ifindex
    constexpr std::uint32_t kMapped = 96; // ::ffff:0:0/96
    const std::uint32_t length = key.prefixlen > kBefore ? key.prefixlen - kBefore : 0;
    const bool ipv4 = is_ipv4(key.addr) && length >= kMapped;
    return {key.addr, static_cast<std::uint8_t>(ipv4 ? length - kMapped : length)};
}

std::string_view map_type_name(std::uint32_t bpf_map_type) {
    const std::string_view name = word_of(kMapTypes, bpf_map_type);
    return name.empty() ? "other" : name;
}

std::string mac_words(const std::uint8_t (&mac)[6]) { return to_mac(mac) == Mac{} ? "" : to_string(to_mac(mac)); }

std::string ip_words(const ip_addr &addr) { return is_none(addr) ? "" : to_string(addr); }

std::vector<std::string> address_words(const endpoint &value) {
    std::vector<std::string> words;
    for (const ip_addr &addr : addresses_in(value))
        words.push_back(to_string(addr));
    return words;
}

std::string pod_words(const endpoint_key &key, const endpoint &value) {
    if (field_text(value.pod_name).empty())
        return std::string(field_text(key.container_id).substr(0, 12));
    const std::string name(field_text(value.pod_name));
    const std::string in(field_text(value.pod_namespace));
    return in.empty() ? name : in + "/" + name;
}

std::string interface_name(std::uint32_t ifindex) {
    const auto name = net::link_name(ifindex);
    return name ? *name : "";
}

} // namespace podlane::ctl
