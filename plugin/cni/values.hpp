// SPDX-License-Identifier: MIT
// Readers of single values of a configuration: each writes a present value, or is an error that names the key.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace podlane::cni {

Result<void> read_name(const json::Node &node, std::string &into);
Result<void> read_fast_path(const json::Node &node, FastPath &into);
Result<void> read_attach(const json::Node &node, AttachBy &into);
Result<void> read_ether_types(const json::Node &node, std::uint32_t &into);
Result<void> read_identity_sources(const json::Node &node, std::uint32_t &into);
Result<void> read_node_name(const json::Node &node, std::string &into);
Result<void> read_ip_families(const json::Node &node, std::uint32_t &into);
// The capability `dns`, whose words are those of its convention: servers, searches, options.
Result<Dns> read_runtime_dns(const json::Node &node);
Result<void> read_limiter(const json::Node &node, Limiter &into);
Result<void> read_log_file(const json::Node &node, std::string &into);
Result<void> read_log_level(const json::Node &node, Log::Level &into);
Result<void> read_mtu(const json::Node &node, std::optional<std::uint32_t> &into);
Result<void> read_host_prefix(const json::Node &node, std::string &into);
Result<void> read_directory(const json::Node &node, std::string &into);
Result<void> read_map_size(const json::Node &node, std::uint32_t &into);
Result<void> read_ipam_timeout(const json::Node &node, std::uint32_t &into); // seconds
Result<void> read_keep_address(const json::Node &node, KeepAddress &into);
Result<void> read_keep_seconds(const json::Node &node, std::uint32_t &into);
Result<void> read_ipam_type(const json::Node &node, std::string &into);
Result<void> read_prefixes(const json::Node &node, std::vector<Prefix> &into);
Result<void> read_requested(const json::Node &node, Config &into);
Result<void> read_uplinks(const json::Node &node, std::vector<std::string> &into);
// Of patterns that no interface's name can match, which an earlier version accepted, so that a record may have them.
Result<void> check_uplinks(const json::Node &node);
// An earlier version accepted any value, so that a record may have it: libcni accepts true and false alone.
Result<void> check_capabilities(const json::Node &node);
// Of a directory that can hold no record: on the BPF file system of `bpffs`.
Result<void> check_state_directory(const json::Node &node, const Config &config);
Result<void> read_mark(const json::Node &node, std::uint32_t &into);
Result<void> read_first_packet(const json::Node &node, bool &direct);
Result<void> read_slow_path_mark(const json::Node &node, std::uint32_t &into_value, std::uint32_t &into_mask);
Result<void> read_confirm_interval(const json::Node &node, std::uint32_t &into);

} // namespace podlane::cni
