// SPDX-License-Identifier: MIT
// Carries the entries of a map over into the same map of another layout: field by field and by name, as the type
// information of both in the kernel says, so that an older binary understands what a newer one left.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <bpf/btf.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace podlane {

using Btf = std::unique_ptr<btf, void (*)(btf *)>;
Result<Btf> load_btf(std::uint32_t id);

// One end of a conversion: bytes that are of a type.
struct Typed {
    const btf *types;
    std::uint32_t type;
    std::span<std::uint8_t> bytes;
};
// What `to` has and `from` has not becomes zero; what only `from` has is left behind. Numbers may change their size and
// arrays their length as long as nothing is lost by it: else an error that names the field. `to` is all zero before.
Result<void> convert(const Typed &from, const Typed &to);

enum class Carry { all, missing }; // `missing`: only what `to` does not have yet
// Returns how many entries were carried over. Both maps are open for reading, and `to` for writing.
Result<std::uint64_t> migrate_map(int from, int to, Carry which);

// The numbers among the constants the loader gave a program (`const volatile`), by name.
using Constants = std::map<std::string, std::uint64_t, std::less<>>;
Result<Constants> program_constants(int program_fd);

} // namespace podlane
