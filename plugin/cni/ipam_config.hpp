// SPDX-License-Identifier: MIT
// The texts exchanged with a delegated plugin: its configuration, its answer to VERSION, its errors.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::cni {

// The configuration for a plugin that does not speak ours: cniVersion replaced, prevResult converted.
// A configuration already in that version comes back unchanged, byte for byte.
Result<std::string> with_cni_version(std::string_view raw, Version version);

// The configuration of a GC as that of a DEL, which has no list of attachments. Unreadable text comes back unchanged.
std::string without_valid_attachments(const std::string &raw);

// The configuration of a DEL or GC, without "runtimeConfig" and "args" if something in them is ignored as invalid: an
// IPAM plugin would refuse it. Unreadable text comes back unchanged.
std::string without_ignored_arguments(const std::string &raw);

// The network's configuration, without what its runtime has added for one container: addresses that another one has,
// for example. Unreadable text comes back unchanged.
std::string without_arguments(const std::string &raw);

// The delegate of a configuration: the plugin's name, the directory of host-local's leases, and the whole of "ipam" to
// compare. None if it names no plugin.
struct IpamSection {
    std::string type;
    std::string data_dir;
    std::string text;
};
std::optional<IpamSection> find_ipam(std::string_view raw);

// Whether it is a plugin's configuration without the key "ipam", as that of one that is chained behind an IPAM plugin.
bool is_without_ipam(std::string_view raw);

// The versions a plugin listed in its answer to VERSION, in its order; texts that are no version are left out.
Result<std::vector<Version>> parse_version_reply(std::string_view stdout_text);

// The "code" of a CNI error; nothing if the text is none.
std::optional<std::uint64_t> plugin_error_code(std::string_view stdout_text);

// The error of a failed plugin: "host-local: no IP addresses available (code 11)". Codes 11, 50 and 51 are kept, any
// other becomes ErrorCode::ipam. If the text is no CNI error, it is `ended` ("/opt/cni/bin/x exited with code 1"),
// whose hint also stands for details that the plugin does not give.
Error parse_plugin_error(std::string_view stdout_text, std::string_view plugin, const Error &ended);

} // namespace podlane::cni
