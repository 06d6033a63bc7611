// SPDX-License-Identifier: MIT
// Loads the embedded programs and their maps into the kernel, once a boot, and finds them again.
#pragma once

#include "maps/abi/config.h"
#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <linux/bpf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

// They count when the programs are loaded, not afterwards.
struct LoadSettings {
    std::uint32_t endpoints = 4096; // size of the maps of endpoints and, four times as many, of addresses
    std::uint32_t paths = 65536;    // size of the map of paths
    std::uint32_t mark = PODLANE_MARK;
    std::uint32_t slow_mark = 0; // conntrack mark, under the mask, of connections that stay on the slow path
    std::uint32_t slow_mark_mask = 0;
    bool conntrack = true;           // follow what conntrack says, if the kernel lets programs query it
    bool replies = true;             // distinguish replies for "isolation", if the kernel lets programs read its memory
    std::uint32_t confirm_ms = 1000; // how long a flow is followed before conntrack is queried again
};

// Makes sure that the programs and maps are pinned below `root`; loads them if they are not. Many processes may
// call it at once: one loads, the others find it done. The pins appear together or not at all.
Result<void> ensure_loaded(const std::string &root, const LoadSettings &settings);

// Loads programs and maps and pins them in `directory`, which stays as it is when that fails half-way. With `maps_from`
// they work on the maps pinned there, as far as those have the names of this binary's, and only the others are made.
Result<void> load_into(const std::string &directory, const LoadSettings &settings, const std::string &maps_from = {});

// Reads the settings that are constants of a loaded program; sizes of maps are not among them.
Result<void> read_constants(int program_fd, LoadSettings &settings);

// Whether the programs pinned below `root` query conntrack; if not, connections take the slow path.
Result<bool> programs_query_conntrack(const std::string &root);

// Whether they distinguish replies among the packets of the host stack; if not, "isolation" is refused.
Result<bool> programs_distinguish_replies(const std::string &root);

// A number that is another one for programs of another build.
std::uint64_t own_build();

// Whether every pin this binary needs is there; the error names what is missing, and maps another version left.
Result<void> check_pins(const std::string &root);

// A pinned program (PODLANE_PROGRAM_*). Error code `missing` if it is not there.
Result<Fd> open_program(const std::string &root, const char *name);

struct ProgramFacts {
    std::uint32_t id = 0;
    std::string name;
    std::string tag;                         // hex
    std::uint64_t loaded_ns = 0;             // CLOCK_BOOTTIME
    std::uint64_t run_count = 0, run_ns = 0; // 0 unless kernel.bpf_stats_enabled
};
Result<ProgramFacts> program_facts(int program_fd);

// The maps a program works on, also those without a pin.
struct ProgramMap {
    Fd fd;
    bpf_map_info info;
};
Result<std::vector<ProgramMap>> program_maps(int program_fd);
// One of them. Error code `missing` if the program has none of that name.
Result<ProgramMap> find_program_map(int program_fd, std::string_view name);

// The facts the kernel would give of this binary's own programs; they are loaded for the moment it takes.
Result<std::vector<ProgramFacts>> embedded_programs();

} // namespace podlane
