// SPDX-License-Identifier: MIT
#include "tools/podlanectl/live/admin_queries.hpp"

#include "loader/privilege.hpp"
#include "maps/tables.hpp"

#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

namespace podlane::ctl {
namespace {

// False at its end, and if there is something else than a T.
template <typename T> bool receive_one(int end, T &into) {
    ssize_t got = 0;
    do
        got = recv(end, &into, sizeof into, 0);
    while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(sizeof into);
}

template <typename T> bool send_one(int end, const T &what) {
    ssize_t sent = 0;
    do
        sent = send(end, &what, sizeof what, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof what);
}

[[noreturn]] void serve_queries(const Fd &end) {
    // A signal to the whole group reaches the owner too, whose last scrape is still answered.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    if (!keep_capabilities(std::array{CAP_NET_ADMIN}))
        _exit(1);
    std::array<std::uint8_t, sizeof(AdminQuery)> packet{};
    for (bool goes_on = true; goes_on;) {
        const auto answer = receive_one(end.get(), packet) ? answer_to(packet) : std::nullopt;
        goes_on = answer && send_one(end.get(), *answer);
    }
    _exit(0);
}

Result<AdminAnswer> query_process(int end, const AdminQuery &query) {
    AdminAnswer answer;
    if (!send_one(end, query) || !receive_one(end, answer))
        return Error{ErrorCode::io_failure, "the process that queries with CAP_NET_ADMIN does not answer"};
    return answer;
}

} // namespace

std::optional<AdminAnswer> answer_to(std::span<const std::uint8_t> packet) {
    AdminQuery query;
    if (packet.size() != sizeof query)
        return std::nullopt;
    std::memcpy(&query, packet.data(), sizeof query);
    const bool is_hook = query.hook == Hook::ingress || query.hook == Hook::egress;
    if (!is_hook || std::ranges::find(query.network, '\0') == std::end(query.network))
        return std::nullopt;
    AdminAnswer answer;
    if (query.ifindex == 0) {
        const auto drops = egress_drops_of(std::string(field_text(query.network)));
        answer.has_drops = drops.has_value();
        answer.drops = drops.value_or(0);
    } else if (const auto ids = programs_on_hook(query.ifindex, query.hook)) {
        answer.count = static_cast<std::uint32_t>(std::min(ids->size(), answer.ids.size()));
        std::copy_n(ids->begin(), answer.count, answer.ids.begin());
    } else {
        answer.error = ids.error().system_errno;
    }
    return answer;
}

Result<AdminProcess> AdminProcess::start() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return system_error(ErrorCode::io_failure, "creating a socket pair", errno);
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    const pid_t pid = fork();
    if (pid < 0)
        return system_error(ErrorCode::io_failure, "starting a process", errno);
    if (pid == 0) {
        ours.reset();
        serve_queries(theirs);
    }
    return AdminProcess(std::move(ours), pid);
}

AdminProcess::AdminProcess(AdminProcess &&other) noexcept
    : end_(std::move(other.end_)), pid_(std::exchange(other.pid_, 0)) {}

AdminProcess::~AdminProcess() {
    end_.reset();
    if (pid_ > 0)
        waitpid(pid_, nullptr, 0);
}

AdminQueries AdminProcess::queries() const {
    const int end = end_.get();
    const auto on_hook = [end](std::uint32_t ifindex, Hook hook) -> Result<std::vector<std::uint32_t>> {
        const AdminAnswer answer = TRY(query_process(end, {.ifindex = ifindex, .hook = hook}));
        if (answer.error != 0)
            return system_error(ErrorCode::bpf,
                                "listing the programs on the hooks of interface " + std::to_string(ifindex),
                                answer.error);
        return std::vector<std::uint32_t>(answer.ids.begin(), answer.ids.begin() + answer.count);
    };
    const auto egress_drops = [end](const std::string &network) -> std::optional<std::uint64_t> {
        AdminQuery query;
        set_field(query.network, network);
        const auto answer = query_process(end, query);
        return answer && answer->has_drops ? std::optional(answer->drops) : std::nullopt;
    };
    return {on_hook, egress_drops};
}

Result<void> AdminProcess::check() {
    if (waitpid(pid_, nullptr, WNOHANG) == 0)
        return {};
    pid_ = 0;
    return Error{ErrorCode::io_failure, "the process that queries with CAP_NET_ADMIN has ended"};
}

} // namespace podlane::ctl
