// SPDX-License-Identifier: MIT
// The two ends of a measurement, each in a network namespace: as options name them, entered and measured.
#pragma once

#include "maps/clock.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace podlane::bench {

struct Ends {
    std::string server_netns, client_netns;
    sockaddr_storage server{};
    socklen_t server_length = 0;

    [[nodiscard]] bool are_complete() const {
        return !server_netns.empty() && !client_netns.empty() && server_length != 0;
    }
};

[[noreturn]] inline void fail(const std::string &doing) {
    std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, doing.c_str(), std::strerror(errno));
    std::_Exit(1);
}

inline double now_s() { return static_cast<double>(monotonic_ns()) * 1e-9; }

// A name below /run/netns, or a path.
inline void enter(const std::string &netns) {
    const std::string path = netns.find('/') == std::string::npos ? "/run/netns/" + netns : netns;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        fail("entering the network namespace " + path);
    close(fd);
}

inline in_port_t &port_of(sockaddr_storage &address) {
    return address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in &>(address).sin_port
                                        : reinterpret_cast<sockaddr_in6 &>(address).sin6_port;
}

// The server's address, IPv4 or IPv6; false for anything else.
inline bool read_address(const char *text, Ends &ends) {
    auto &v4 = reinterpret_cast<sockaddr_in &>(ends.server);
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(ends.server);
    const bool is_v4 = inet_pton(AF_INET, text, &v4.sin_addr) == 1;
    ends.server.ss_family = is_v4 ? AF_INET : AF_INET6;
    ends.server_length = is_v4 ? sizeof v4 : sizeof v6;
    return is_v4 || inet_pton(AF_INET6, text, &v6.sin6_addr) == 1;
}

// The socket sends with this congestion control.
inline void set_congestion(int fd, const std::string &name) {
    constexpr int kTcpCongestion = 13; // linux/tcp.h and netinet/tcp.h, of which files need one, exclude each other
    if (setsockopt(fd, IPPROTO_TCP, kTcpCongestion, name.data(), static_cast<socklen_t>(name.size())) != 0)
        fail("congestion control " + name);
}

} // namespace podlane::bench
