// SPDX-License-Identifier: MIT
// Finds a container's network namespace by its inode number: the endpoint record has no path.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/abi/endpoint.h"
#include "maps/errors.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace podlane::ctl {

// Every network namespace visible as a mount or a process of this machine, by inode number, with a path to open it by.
// An error if they cannot be listed. Processes may hide theirs, which is in `unread`: one that is not found may be
// there.
Result<std::map<std::uint64_t, std::string>> network_namespaces(Errors &unread);
// The bind-mounted ones among them, by the text of /proc/self/mountinfo.
std::map<std::uint64_t, std::string> mounted_namespaces(const std::string &mountinfo);

// Whether one of them is the endpoint's (loader/pod_namespace.hpp). If it cannot be opened, the inode number decides.
bool is_among(const std::map<std::uint64_t, std::string> &namespaces, const endpoint &entry, std::uint64_t cookie);

// Of an ADD that is under way only the path is known. A failed look is no answer.
bool is_namespace_there(const std::string &path);

// Not from a container that has not mounted where runtimes keep namespaces. One of a process goes with that, unless
// processes hide theirs; a host-side veth shows it all the same. One that only the maps know has that to go by, or
// nothing.
bool shows_namespace_of(const AttachmentRecord &record, bool are_some_hidden);

// A socket in it; none if none of them is the endpoint's. One that cannot be opened or entered is an error.
Result<std::optional<net::Netlink>> open_among(const std::map<std::uint64_t, std::string> &namespaces,
                                               const endpoint &entry, std::uint64_t cookie);

} // namespace podlane::ctl
