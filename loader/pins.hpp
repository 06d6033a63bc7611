// SPDX-License-Identifier: MIT
// Where the pins live: the bpffs, the root directory with its lock, and maps another version left there.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane {

// Makes sure that `root` is a 0700 directory on a bpffs and owned by root. Mounts the standard /sys/fs/bpf if
// nothing is mounted yet; any other place must be a bpffs already (ErrorCode::plugin_not_available names it).
Result<void> prepare_root(const std::string &root);

// An exclusive or shared flock(2) on the root directory, held for the object's life (loader/lock_file.hpp). Whoever
// waited while the root was removed gets that of the root that was made in its place, or ErrorCode::missing.
class Lock {
  public:
    static Result<Lock> exclusive(const std::string &root);
    static Result<Lock> shared(const std::string &root);
    // Whether `root` is still the directory that is locked: an administrator may remove it all the same.
    [[nodiscard]] Result<bool> is_of(const std::string &root) const;

  private:
    explicit Lock(Fd fd) : fd_(std::move(fd)) {}
    static Result<Lock> take(const std::string &root, int operation);
    Fd fd_;
};

// Whether a Lock could not be had because `root` is missing: callers that need no lock then have handled it.
bool is_of_missing_root(const std::string &root, const Error &error);

// Whether there is a pin, or a directory of pins, of this path.
Result<bool> is_pinned(const std::string &path);

// An empty directory for the pins of what is being loaded, and no leftovers. It has a name of its own: if the root is
// removed meanwhile, the pins do not get among those that another call loads for the next one. Needs the exclusive
// lock.
Result<std::string> make_loading_directory(const std::string &root);
// Such directories, and what an upgrade replaced. Under the lock they are those of calls that were killed.
Result<std::vector<std::string>> leftovers(const std::string &root);
// Needs the exclusive lock.
Result<void> remove_leftovers(const std::string &root);
// Where an upgrade keeps the pins it replaces, until the new ones are live.
std::string replaced_directory(const std::string &root);
// Replaces the live directory by `loading` and removes it. Needs the exclusive lock.
Result<void> publish(const std::string &root, const std::string &loading);

// Pins in the live directory that are a known map in another version than this binary's ("endpoints_v0").
Result<std::vector<std::string>> maps_of_other_versions(const std::string &root);
// ErrorCode::try_again_later if there are some: what this binary would do to its own maps is lost.
Result<void> refuse_other_versions(const std::string &root);
// The one that is the same map as `name`; empty if there is none.
Result<std::string> other_version(const std::string &root, std::string_view name);
// "endpoints_v12" → ("endpoints", 12); version 0 if the name has none.
std::pair<std::string_view, unsigned> split_version(std::string_view name);

// Removes a directory of pins with everything in it; a missing one is no error.
Result<void> remove_pins(const std::string &directory);

// In a directory of pins: a symbolic link that names the network namespace the programs were loaded in.
inline constexpr const char *kNetnsLink = "netns";

// Creates it.
Result<void> name_netns(const std::string &directory, std::uint32_t netns);
// 0: none is named, or nothing is pinned.
Result<std::uint32_t> netns_of(const std::string &root);
// ErrorCode::plugin_not_available if what is pinned below `root` belongs to another network namespace than `netns`:
// interfaces are known by their indexes, which mean others there. Pins of a version that named none belong to any.
Result<void> refuse_other_netns(const std::string &root, std::uint32_t netns);

} // namespace podlane
