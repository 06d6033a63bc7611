// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/namespaces.hpp"

#include "loader/pod_namespace.hpp"
#include "loader/state_file.hpp"
#include "maps/file.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
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

// The kernel refuses the link of a process that has just ended, too.
Result<void> refuse_hidden(const std::string &path, const std::string &process, int system_errno) {
    if (system_errno == ENOENT || system_errno == ENOTDIR || system_errno == ESRCH || !TRY(exists("/proc/" + process)))
        return {};
    Error error = system_error(ErrorCode::io_failure, "reading " + path, system_errno);
    if (system_errno == EACCES || system_errno == EPERM)
        error.hint = "run as root with CAP_SYS_PTRACE (not in a restricted container)";
    return error;
}

Result<void> add_inhabited(std::map<std::uint64_t, std::string> &found, Errors &unread) {
    for (const std::string &name : TRY(names_in("/proc"))) {
        const std::string path = "/proc/" + name + "/ns/net";
        std::array<char, 64> target{};
        if (readlink(path.c_str(), target.data(), target.size() - 1) > 0) {
            if (const std::uint64_t inode = inode_of(target.data()); inode != 0)
                found.try_emplace(inode, path);
        } else if (unread.none()) { // one is enough to say that some are hidden
            unread.add(refuse_hidden(path, name, errno));
        }
    }
    return {};
}

} // namespace

// proc(5), mountinfo: the fourth field is the root, the fifth the mount place.
std::map<std::uint64_t, std::string> mounted_namespaces(const std::string &mountinfo) {
    std::map<std::uint64_t, std::string> found;
    std::istringstream mounts(mountinfo);
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream fields(line);
        std::string skipped, root, place;
        fields >> skipped >> skipped >> skipped >> root >> place;
        if (const std::uint64_t inode = inode_of(root); inode != 0)
            found.try_emplace(inode, place);
    }
    return found;
}

Result<std::map<std::uint64_t, std::string>> network_namespaces(Errors &unread) {
    std::map<std::uint64_t, std::string> found = mounted_namespaces(TRY(read_file("/proc/self/mountinfo")));
    TRY(add_inhabited(found, unread));
    return found;
}

bool is_among(const std::map<std::uint64_t, std::string> &namespaces, const endpoint &entry, std::uint64_t cookie) {
    const auto place = namespaces.find(entry.netns_inode);
    if (place == namespaces.end())
        return false;
    const auto there = net::Namespace::open(place->second);
    if (!there || there->inode() != entry.netns_inode)
        return true;
    const auto inside = open_pod(*there, entry, cookie);
    return !inside || *inside;
}

bool is_namespace_there(const std::string &path) {
    const auto there = exists(path);
    return !there || *there;
}

bool shows_namespace_of(const AttachmentRecord &record, bool are_some_hidden) {
    const bool is_of_process = record.netns.starts_with("/proc/");
    if (record.netns.empty() || (is_of_process && are_some_hidden))
        return record.entry && record.entry->ifindex != 0;
    return is_of_process || is_namespace_there(record.netns.substr(0, record.netns.rfind('/')));
}

Result<std::optional<net::Netlink>> open_among(const std::map<std::uint64_t, std::string> &namespaces,
                                               const endpoint &entry, std::uint64_t cookie) {
    const auto place = namespaces.find(entry.netns_inode);
    if (place == namespaces.end())
        return std::optional<net::Netlink>{};
    const auto there = TRY(net::Namespace::find(place->second));
    return there ? open_pod(*there, entry, cookie) : std::optional<net::Netlink>{};
}

} // namespace podlane::ctl
