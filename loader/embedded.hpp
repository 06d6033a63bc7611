// What those who load embedded programs share: the owner of a skeleton, the maps of a directory of pins, and what
// libbpf and the verifier said last.
#pragma once

#include "loader/object.hpp"
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

// Sets the constants by which a program follows conntrack.
template <typename Rodata> void set_flow_constants(Rodata &rodata, const LoadSettings &settings) {
    rodata.has_conntrack = settings.conntrack;
    rodata.slow_mark = settings.slow_mark;
    rodata.slow_mark_mask = settings.slow_mark_mask;
    rodata.confirm_ns = std::uint64_t{settings.confirm_ms} * 1'000'000;
}

} // namespace podlane
