// SPDX-License-Identifier: MIT
// The queries of a scrape for which the kernel requires CAP_NET_ADMIN.
#pragma once

#include "loader/attach.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"
#include "tools/podlanectl/views/network.hpp"

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace podlane::ctl {

struct AdminQueries {
    ProgramsOnHook on_hook = &programs_on_hook;
    std::function<std::optional<std::uint64_t>(const std::string &network)> egress_drops = &egress_drops_of;
};

// A query to that process, and its answer: each is one packet on the socket.
struct AdminQuery {
    std::uint32_t ifindex = 0; // 0: of a network's drops
    Hook hook = Hook::ingress;
    char network[ENDPOINT_NETWORK_SIZE]{};
};
struct AdminAnswer {
    int error = 0;                       // errno
    std::uint32_t count = 0;             // of `ids`
    std::array<std::uint32_t, 65> ids{}; // 64 on tcx, the kernel's limit, and one on clsact
    bool has_drops = false;
    std::uint64_t drops = 0;
};
// None to what is no query: whoever has taken over the server may send anything.
std::optional<AdminAnswer> answer_to(std::span<const std::uint8_t> packet);

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
