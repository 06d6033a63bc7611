// SPDX-License-Identifier: MIT
// Names and text for the numbers in the ABI structs.
#pragma once

#include "maps/tables.hpp"
#include "maps/words.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// Short names of the flags: "local,uplink", "local", "off".
std::string fast_path_words(std::uint32_t interface_flags);
std::string_view mode_sentence(std::uint8_t endpoint_mode); // for people
std::string_view kind_name(reason_kind kind);
// Also for reasons of a newer podlane: "reason-40", of kind "unknown".
std::string reason_name(std::size_t reason);
std::string_view reason_kind_name(std::size_t reason);
std::string_view reason_sentence(std::size_t reason);
std::string protocol_name(std::uint8_t protocol);
std::string_view via_name(std::uint32_t path_via);
// "192.0.2.1:80", "[2001:db8::1]:80"; without the port if it is 0.
std::string socket_words(const ip_addr &addr, std::uint16_t be_port);
Prefix allowed_prefix(const allowed_source_key &key);
std::string_view map_type_name(std::uint32_t bpf_map_type);
std::string mac_words(const std::uint8_t (&mac)[6]);
// Empty if the address is "none".
std::string ip_words(const ip_addr &addr);
std::vector<std::string> address_words(const endpoint &value);
// "namespace/name", or the first 12 characters of the container ID if no pod is known.
std::string pod_words(const endpoint_key &key, const endpoint &value);

// Name of an interface of this namespace; empty if it is gone.
std::string interface_name(std::uint32_t ifindex);

} // namespace podlane::ctl
