// SPDX-License-Identifier: MIT
#include "loader/net/open_in_each.hpp"

#include <sched.h>

#include <cerrno>
#include <system_error>
#include <thread>

namespace podlane::net {
namespace {

Result<Netlink> open_there(const Namespace &target) {
    if (setns(target.fd(), CLONE_NEWNET) != 0)
        return system_error(ErrorCode::invalid_environment, "entering a network namespace", errno);
    return Netlink::open();
}

} // namespace

std::vector<Result<Netlink>> open_in_each(std::span<const Namespace> targets) {
    std::vector<Result<Netlink>> opened;
    opened.reserve(targets.size());
    try {
        std::thread([&] {
            for (const Namespace &target : targets)
                opened.push_back(open_there(target));
        }).join();
    } catch (const std::system_error &error) {
        while (opened.size() < targets.size())
            opened.emplace_back(system_error(ErrorCode::io_failure, "starting a thread", error.code().value()));
    }
    return opened;
}

} // namespace podlane::net
