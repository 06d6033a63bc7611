// Finds the network namespace of a container again by its inode number: the record of an endpoint has no path.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace podlane::ctl {

// Every network namespace that a mount or a process of this machine shows, by inode number, with a path to open it by.
std::map<std::uint64_t, std::string> network_namespaces();

} // namespace podlane::ctl
