// SPDX-License-Identifier: MIT
#include "loader/net/legacy_tables.hpp"

#include "maps/file.hpp"
#include "maps/text.hpp"

#include <algorithm>

namespace podlane::net {

Result<bool> has_legacy_table(bool ipv4, std::string_view table) {
    const auto names =
        read_file(ipv4 ? "/proc/thread-self/net/ip_tables_names" : "/proc/thread-self/net/ip6_tables_names");
    if (!names)
        return names.error().code == ErrorCode::missing ? Result<bool>(false) : names.error();
    return std::ranges::count(split(*names, "\n"), table) != 0;
}

} // namespace podlane::net
