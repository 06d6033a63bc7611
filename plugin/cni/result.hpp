// SPDX-License-Identifier: MIT
// CNI results as JSON: read in any version's form, written in the form of the requested version.
#pragma once

#include "plugin/cni/types.hpp"

#include <string>
#include <string_view>

namespace podlane::cni {

// Before 0.3.0 the first address of each family and its family's routes; mtu and route details from 1.1.0 on.
std::string to_json(const Attachment &attachment, Version version);

// The answer to VERSION.
std::string version_json(Version requested);

// A result as a plugin printed it (IPAM plugin: untrusted); its form follows from its keys, not from its cniVersion.
// Every address is a prefix, every interface index in range. Errors have code 6.
Result<Attachment> parse_attachment(std::string_view json);
// The same of an IPAM plugin: its addresses are the container's interface's, whatever interfaces it names or numbers.
Result<Attachment> parse_lease(std::string_view json);

} // namespace podlane::cni
