// SPDX-License-Identifier: MIT
// Shared by everything that loads embedded programs: the owner of a skeleton, the maps of a directory of pins, and the
// last messages of libbpf and the verifier.
#pragma once

#include "loader/object.hpp"
#include "maps/result.hpp"

#include <bpf/libbpf.h>

#include <memory>
#include <string>
#include <string_view>

namespace podlane {

template <typename Skeleton> using Owned = std::unique_ptr<Skeleton, void (*)(Skeleton *)>;

// From here on libbpf's warnings are kept for load_error() instead of printed.
void keep_libbpf_log();
// An error with libbpf's last lines as its hint, which include the verifier's reason for a refusal.
Error load_error(std::string_view doing, int system_errno);

// Not of the kernel, but of the moment: the next attempt may succeed. libbpf returns ESRCH, whatever the reason, if it
// could not read the kernel's type information.
bool is_transient(int system_errno);

// Loads an opened object with all of its type information, or fails: with a transient error if the kernel refused
// anything for the moment.
Result<void> load_object(bpf_object *object, const std::string &doing);
// The same, for a skeleton whose variables are used afterwards.
Result<void> load_object(bpf_object_skeleton *skeleton, const std::string &doing);

// Makes an opened object use the maps that are pinned in `directory` under its maps' names. It will create those that
// are missing; a map with another layout is an error.
Result<void> reuse_maps(bpf_object *object, const std::string &directory);

} // namespace podlane
