// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/program_output.hpp"

#include "loader/process.hpp"

namespace podlane::ctl {

// Rules may exist all the same: another agent's container may have the program.
Error not_installed(const std::string &program) {
    return {ErrorCode::missing, program + " is not installed",
            std::string("install the package ") + (program == "nft" ? "nftables" : "iptables")};
}

Result<std::string> output_of(const std::string &program, const std::vector<std::string> &arguments) {
    const std::string path = TRY(find_program(program));
    if (path.empty())
        return not_installed(program);
    const Finished finished = TRY(run_process(path, {"LC_ALL=C", "PATH=/usr/sbin:/sbin:/usr/bin:/bin"}, "", arguments));
    if (finished.exit_code == 0)
        return finished.out;
    const bool is_missing = finished.err.find("No such file or directory") != std::string::npos;
    return Error{is_missing ? ErrorCode::missing : ErrorCode::io_failure,
                 path + ": " + finished.err.substr(0, finished.err.find('\n'))};
}

} // namespace podlane::ctl
