// What those who load embedded programs share: the owner of a skeleton, the maps of a directory of pins, and what
// libbpf and the verifier said last.
#pragma once

#include "maps/result.hpp"

#include <bpf/libbpf.h>

#include <memory>
#include <string>
#include <string_view>

namespace podlane {

template <typename Skeleton> using Owned = std::unique_ptr<Skeleton, void (*)(Skeleton *)>;

// From here on what libbpf warns of is kept instead of printed, for load_error().
void keep_libbpf_log();
// An error with the last lines libbpf had to say as its hint: the verifier's reason for a refusal among them.
Error load_error(std::string_view doing, int system_errno);

// Lets an opened object work on the maps that are pinned in `directory` under its maps' names. What is not there it
// will make anew; the name of one with another layout is an error.
Result<void> reuse_maps(bpf_object *object, const std::string &directory);

} // namespace podlane
