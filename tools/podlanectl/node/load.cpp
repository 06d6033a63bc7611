// SPDX-License-Identifier: MIT
// load: programs and maps into the kernel, ahead of the first pod.
#include "maps/abi/names.h"
#include "maps/file.hpp"
#include "plugin/cni/list.hpp"
#include "plugin/load.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/node_object.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/nouns.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

namespace podlane::ctl {
namespace {

namespace fs = std::filesystem;

// Of a network of Podlane's, and the file it is from.
struct Network {
    std::string file; // empty: none
    std::string configuration;
};

// In the order in which runtimes read them: by name.
Result<std::vector<std::string>> files_in(const std::string &directory) {
    std::vector<std::string> files;
    std::error_code error;
    for (auto entry = fs::directory_iterator(directory, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
        const std::string end = entry->path().extension();
        if (end == ".conflist" || end == ".conf" || end == ".json")
            files.push_back(entry->path());
    }
    if (error && error != std::errc::no_such_file_or_directory)
        return system_error(ErrorCode::io_failure, "reading " + directory, error.value());
    std::ranges::sort(files);
    return files;
}

Result<Network> read_network(const std::string &file, Result<std::string> text) {
    auto part = cni::status_input(TRY(std::move(text)));
    if (!part)
        return std::move(part).error().context(file);
    return *part ? Network{file, **part} : Network{};
}

// The first file that has Podlane in it. Runtimes pass over one that they cannot read; if no other has, it may be the
// one.
Result<Network> find_network(const std::string &directory) {
    std::optional<Error> unread;
    for (const std::string &file : TRY(files_in(directory))) {
        auto network = read_network(file, read_network_file(file));
        if (network && !network->file.empty())
            return network;
        if (!network && !unread)
            unread = std::move(network).error();
    }
    if (unread)
        return *std::move(unread);
    return Network{"", R"({"cniVersion": "1.1.0", "name": "load", "type": "podlane"})"};
}

Result<int> load(const Call &call, World &world) {
    if (geteuid() != 0)
        return Error{ErrorCode::bpf, "no permission to load programs", "run it as root: sudo podlanectl load", EPERM};
    const std::string directory = call.value(Opt::conf_dir).value_or(kConfDir);
    const Network network = call.argument.empty() ? TRY(find_network(directory))
                                                  : TRY(read_network(call.argument, read_regular_file(call.argument)));
    if (!call.argument.empty() && network.file.empty())
        return Error{ErrorCode::missing, call.argument + " names no plugin of type podlane",
                     "name the file that the runtime reads, or none"};
    const auto root = call.has(Opt::bpffs) || world.bpffs != PODLANE_ROOT ? std::optional(world.bpffs) : std::nullopt;
    auto node = load_node(network.configuration, root);
    if (!node)
        return network.file.empty() ? std::move(node).error() : std::move(node).error().context(network.file);
    const std::string from = network.file.empty() ? "the default settings: no network of Podlane in " + directory
                                                  : "the settings of " + network.file;
    if (world.json)
        world.print(output::json_text(output::Object{
            {"loaded", !node->was_loaded},
            {"bpffs", node->bpffs},
            {"configuration", network.file.empty() ? output::Value(nullptr) : output::Value(network.file)}}));
    else
        world.print(node->was_loaded ? "already loaded in " + node->bpffs + "\n"
                                     : "loaded in " + node->bpffs + ", with " + from + "\n");
    return 0;
}

constexpr std::array<Command, 1> kLoadCommands = {{
    {"",
     "Load programs and maps, as the first ADD after a boot would, which then takes no longer than others.",
     kPlain | Opts{Opt::conf_dir},
     {"FILE", false, "the network's configuration (default: the first in --conf-dir that has the plugin podlane)"},
     "Sizes of maps and marks are those of the configuration; they stay until the next boot. If programs are loaded\n"
     "already, they stay as they are. The package's unit podlane-load does this at boot.",
     load,
     true},
}};

} // namespace

const Noun kLoadNoun = {"load", "load the programs ahead of the first pod", kLoadCommands};

} // namespace podlane::ctl
