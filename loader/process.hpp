// Runs another program with given input, environment and no shell, and collects what it prints.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane {

struct Finished {
    int exit_code = 0; // 128 + signal where it was killed
    std::string out;
    std::string err; // the first few KiB
};

// `environment` holds "NAME=value" entries. More than 1 MiB on standard output is an error, and the program is killed.
Result<Finished> run_process(const std::string &path, const std::vector<std::string> &environment,
                             const std::string &input, const std::vector<std::string> &arguments = {});

} // namespace podlane
