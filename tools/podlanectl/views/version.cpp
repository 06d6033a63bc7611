// SPDX-License-Identifier: MIT
// version: this binary, its map layouts, and libbpf.
#include "loader/pins.hpp"
#include "maps/version.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <bpf/libbpf.h>

namespace podlane::ctl {
namespace {

Result<int> version(const Call &, World &world) {
    const std::string libbpf = std::to_string(libbpf_major_version()) + "." + std::to_string(libbpf_minor_version());
    std::string text = "podlanectl " + std::string(kVersion) + "\nlibbpf " + libbpf + "\nmaps";
    output::Object maps;
    for (const KnownMap &map : known_maps()) {
        text += " " + std::string(map.name);
        maps.emplace_back(split_version(map.name).first, split_version(map.name).second);
    }
    world.print(world.json
                    ? output::json_text(output::Object{{"version", kVersion}, {"libbpf", libbpf}, {"maps", maps}})
                    : text + "\n");
    return 0;
}

constexpr std::array<Command, 1> kVersionCommands = {{
    {"", "Print versions.", kPlain, {}, "", version},
}};

} // namespace

const Noun kVersionNoun = {"version", "versions of podlanectl, its maps and libbpf", kVersionCommands};

} // namespace podlane::ctl
