// SPDX-License-Identifier: MIT
#include "loader/net/legacy_tables.hpp"

#include <fstream>
#include <string>

namespace podlane::net {

bool has_legacy_table(bool ipv4, std::string_view table) {
    std::ifstream names(ipv4 ? "/proc/thread-self/net/ip_tables_names" : "/proc/thread-self/net/ip6_tables_names");
    for (std::string name; std::getline(names, name);)
        if (name == table)
            return true;
    return false;
}

} // namespace podlane::net
