// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"
#include "tools/podlanectl/cli/cli.hpp"

int main(int argc, char **argv) {
    const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    podlane::ctl::World world = podlane::ctl::real_world();
    world.cleaned_rcu = podlane::ExpeditedRcu::clean_up();
    return podlane::ctl::run(words, world);
}
