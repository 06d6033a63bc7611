// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "loader/process.hpp"
#include "loader/record.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/runtime_network.hpp"

#include <cerrno>

namespace {

// Interfaces are known by their indexes, which mean others in another network namespace. Without permission to read
// whose they are, the command says what else it may not.
podlane::Result<void> may_write(const std::string &root) {
    auto refused = podlane::refuse_other_netns(root, TRY(podlane::net::own_netns()));
    return !refused && refused.error().system_errno == EACCES ? podlane::Result<void>() : std::move(refused);
}

// The option as a command needs it that has it, and is not given it: if the runtime's networks name a directory.
std::string state_directory(const std::vector<std::string_view> &words) {
    using namespace podlane::ctl;
    const auto call = parse(words);
    if (!call || call->help || !call->command->options.has(Opt::state_dir) || call->has(Opt::state_dir))
        return {};
    const std::string found = configured_state_directory(call->value(Opt::conf_dir).value_or(kConfDir));
    return found == podlane::kStateDirectory ? std::string() : "--state-dir=" + found;
}

} // namespace

int main(int argc, char **argv) {
    podlane::reserve_standard_streams();
    podlane::survive_file_size_limit();
    std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    const std::string option = state_directory(words);
    if (!option.empty())
        words.insert(words.begin(), option); // behind "--" it would be no option
    podlane::ctl::World world = podlane::ctl::real_world();
    world.has_configured_state_dir = !option.empty();
    world.cleaned_rcu = podlane::ExpeditedRcu::clean_up();
    world.may_write = &may_write;
    return podlane::ctl::run(words, world);
}
