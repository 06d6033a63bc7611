// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/namespaces.hpp"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace podlane::ctl {
namespace {

// "net:[4026531840]" → 4026531840; 0 for anything else.
std::uint64_t inode_of(std::string_view text) {
    constexpr std::string_view kPrefix = "net:[";
    std::uint64_t inode = 0;
    if (text.starts_with(kPrefix))
        std::from_chars(text.data() + kPrefix.size(), text.data() + text.size(), inode);
    return inode;
}

// Bind-mounted namespaces (proc(5), mountinfo: the fourth field is the root, the fifth the mount
// place).
void add_mounted(std::map<std::uint64_t, std::string> &found) {
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream fields(line);
        std::string skipped, root, place;
        fields >> skipped >> skipped >> skipped >> root >> place;
        if (const std::uint64_t inode = inode_of(root); inode != 0)
            found.try_emplace(inode, place);
    }
}

void add_inhabited(std::map<std::uint64_t, std::string> &found) {
    const std::unique_ptr<DIR, int (*)(DIR *)> processes(opendir("/proc"), &closedir);
    while (const dirent *entry = processes == nullptr ? nullptr : readdir(processes.get())) {
        const std::string path = std::string("/proc/") + entry->d_name + "/ns/net";
        std::array<char, 64> target{};
        if (readlink(path.c_str(), target.data(), target.size() - 1) > 0)
            if (const std::uint64_t inode = inode_of(target.data()); inode != 0)
                found.try_emplace(inode, path);
    }
}

} // namespace

std::map<std::uint64_t, std::string> network_namespaces() {
    std::map<std::uint64_t, std::string> found;
    add_mounted(found);
    add_inhabited(found);
    return found;
}

} // namespace podlane::ctl
