// SPDX-License-Identifier: MIT
// The queries of a scrape for which the kernel requires CAP_NET_ADMIN.
#pragma once

#include "loader/attach.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"
#include "tools/podlanectl/views/network.hpp"

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace podlane::ctl {

struct AdminQueries {
    ProgramsOnHook on_hook = &programs_on_hook;
    std::function<std::optional<std::uint64_t>(const std::string &network)> egress_drops = &egress_drops_of;
};

// A process that has no other capability, answers these queries, and reads nothing else. So what reads requests from
// the network does without the capability.
class AdminProcess {
  public:
    // Forks. The process ends with this handle, or with its owner.
    static Result<AdminProcess> start();
    AdminProcess(AdminProcess &&other) noexcept;
    AdminProcess &operator=(AdminProcess &&) = delete;
    AdminProcess(const AdminProcess &) = delete;
    AdminProcess &operator=(const AdminProcess &) = delete;
    ~AdminProcess();

    // Valid as long as this handle.
    [[nodiscard]] AdminQueries queries() const;
    // An error if the process has ended: it never does by itself.
    Result<void> check();

  private:
    AdminProcess(Fd end, pid_t pid) : end_(std::move(end)), pid_(pid) {}

    Fd end_; // of the socket to it
    pid_t pid_;
};

} // namespace podlane::ctl
