// SPDX-License-Identifier: MIT
// Code that runs as a hostile pod's process: in its network namespace, as uid 65534, with CAP_NET_RAW or without any
// capability.
#pragma once

#include "loader/net/namespace.hpp"
#include "maps/abi/types.h"
#include "maps/fd.hpp"
#include "tests/harness/process.hpp"
#include "tests/harness/talk.hpp"

#include <linux/capability.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace podlane::test {

enum class Privilege { none, net_raw };

inline void must_not_fail(long result, const char *what) {
    if (result != 0)
        throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// The calling thread alone: libc's functions of these names change all threads.
inline void drop_privileges(Privilege keep) {
    constexpr unsigned kNobody = 65534;
    must_not_fail(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "PR_SET_KEEPCAPS");
    must_not_fail(syscall(SYS_setgroups, 0, nullptr), "setgroups");
    must_not_fail(syscall(SYS_setresgid, kNobody, kNobody, kNobody), "setresgid");
    must_not_fail(syscall(SYS_setresuid, kNobody, kNobody, kNobody), "setresuid");
    const unsigned kept = keep == Privilege::net_raw ? 1U << CAP_NET_RAW : 0U;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> sets{{{kept, kept, 0}, {0, 0, 0}}};
    must_not_fail(syscall(SYS_capset, &header, sets.data()), "capset");
}

inline void as_hostile(const net::Namespace &where, Privilege keep, const std::function<void()> &what) {
    std::exception_ptr failed;
    std::thread([&] {
        try {
            must_not_fail(setns(where.fd(), CLONE_NEWNET), "setns");
            drop_privileges(keep);
            what();
        } catch (...) {
            failed = std::current_exception();
        }
    }).join();
    if (failed)
        std::rethrow_exception(failed);
}

inline sockaddr_in6 to_sockaddr(const ip_addr &addr, std::uint16_t port) {
    sockaddr_in6 out{};
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(port);
    std::memcpy(&out.sin6_addr, &addr, sizeof addr);
    return out;
}

// From an address of another interface: a socket needs no capability for it.
inline void send_by(const std::string &ifname, const ip_addr &source, const ip_addr &destination, std::size_t bytes,
                    int packets) {
    const Fd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_in6 from = to_sockaddr(source, 0);
    const sockaddr_in6 to = to_sockaddr(destination, 7);
    must_not_fail(setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, ifname.c_str(), ifname.size()), "bind to it");
    must_not_fail(bind(socket.get(), reinterpret_cast<const sockaddr *>(&from), sizeof from), "bind"); // NOLINT
    const std::string data(bytes, 'x');
    for (int i = 0; i < packets; ++i)
        (void)sendto(socket.get(), data.data(), bytes, 0, reinterpret_cast<const sockaddr *>(&to), sizeof to); // NOLINT
}

// A datagram to each of many ports, as fast as a process without capabilities can.
inline std::uint64_t flood(const net::Namespace &from, const std::vector<ip_addr> &to, bool ipv4,
                           const std::atomic<bool> &stop) {
    std::uint64_t sent = 0;
    as_hostile(from, Privilege::none, [&] {
        while (!stop) {
            const Fd socket(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            for (std::uint16_t port = 1024; port < 60000 && !stop; ++port)
                sent += send_datagram(socket, {to[port % to.size()], port}, "x") ? 1 : 0;
        }
    });
    return sent;
}

// Connections to an accomplice that answers each datagram, so that conntrack counts them as assured once they are two
// seconds old. Then, of the two datagrams that each sends in its turn, the second takes the fast path.
inline void flood_answered(const net::Namespace &from, const std::vector<Endpoint> &to, bool ipv4,
                           const std::atomic<bool> &stop) {
    constexpr std::size_t kConnections = 256;
    constexpr std::size_t kAtOnce = 16;
    constexpr timeval kLost{0, 50000};
    as_hostile(from, Privilege::none, [&] {
        std::vector<Fd> sockets;
        for (std::size_t i = 0; i < kConnections; ++i) {
            sockets.emplace_back(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            setsockopt(sockets.back().get(), SOL_SOCKET, SO_RCVTIMEO, &kLost, sizeof kLost);
        }
        for (std::size_t first = 0; !stop; first = (first + kAtOnce) % kConnections)
            for (int datagram = 0; datagram < 2; ++datagram) {
                for (std::size_t i = first; i < first + kAtOnce; ++i)
                    (void)send_datagram(sockets[i], to[i % to.size()], "x");
                for (std::size_t i = first; i < first + kAtOnce; ++i)
                    (void)recv(sockets[i].get(), nullptr, 0, 0);
            }
    });
}

} // namespace podlane::test
