// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "loader/process.hpp"
#include "tools/podlanectl/cli/cli.hpp"

namespace {

// Interfaces are known by their indexes, which mean others in another network namespace.
podlane::Result<void> may_write(const std::string &root) {
    return podlane::refuse_other_netns(root, TRY(podlane::net::own_netns()));
}

} // namespace

int main(int argc, char **argv) {
    podlane::reserve_standard_streams();
    podlane::survive_file_size_limit();
    const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    podlane::ctl::World world = podlane::ctl::real_world();
    world.cleaned_rcu = podlane::ExpeditedRcu::clean_up();
    world.may_write = &may_write;
    return podlane::ctl::run(words, world);
}
