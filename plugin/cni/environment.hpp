// SPDX-License-Identifier: MIT
// The CNI_* variables of one call, checked as the specification (1.1.0) and its reference library do.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace podlane::cni {

// What CNI_ARGS requests beside the pod's identity.
struct Arguments {
    PodIdentity pod;
    std::vector<Prefix> ips;
    std::optional<Mac> mac;
    std::string repeated{};   // the first key that is there twice; empty: none
    bool has_foreign = false; // keys of a runtime that does not set IgnoreUnknown
};

Result<Command> read_command(const Environment &environment);

// Fills the fields of `request` that come from the environment, for its command. Errors have code 4 and name the
// variable.
Result<Arguments> read_environment(const Environment &environment, Request &request);

// "IgnoreUnknown=1;K8S_POD_NAME=web;…"
Result<Arguments> parse_arguments(std::string_view text);

// Directories with ':' between them, each an absolute path; at least one.
Result<std::vector<std::string>> split_path(std::string_view text);

// Container IDs and network names: a letter or digit, then letters, digits, '_', '.', '-'; at most 127 characters.
[[nodiscard]] bool is_valid_name(std::string_view name);

// Multicast and all-zero addresses are none that an interface can have.
[[nodiscard]] bool is_interface_mac(const Mac &mac);
inline constexpr const char *kInterfaceMac = "a unicast address such as 02:00:00:00:00:01, not the gateway's";

} // namespace podlane::cni
