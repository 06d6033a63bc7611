// SPDX-License-Identifier: MIT
// A datagram and its sender, for sockets that take datagrams from anybody.
#pragma once

#include "tests/harness/process.hpp"
#include "tests/harness/talk.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>

namespace podlane::test {

struct Datagram {
    std::string text{};
    Endpoint from{};
};

// The next one that has arrived, if there is any. A large one is cut.
inline std::optional<Datagram> next_datagram(const Fd &socket) {
    std::string text(4096, '\0');
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t bytes = recvfrom(socket.get(), text.data(), text.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr *>(&from), &size); // NOLINT
    if (bytes < 0)
        return {};
    text.resize(static_cast<std::size_t>(bytes));
    Datagram one{std::move(text), {}};
    if (from.ss_family == AF_INET) {
        const auto &in = reinterpret_cast<const sockaddr_in &>(from); // NOLINT
        one.from = {{{0, 0, htonl(0xffff), in.sin_addr.s_addr}}, ntohs(in.sin_port)};
    } else {
        const auto &in = reinterpret_cast<const sockaddr_in6 &>(from); // NOLINT
        std::memcpy(&one.from.addr, &in.sin6_addr, sizeof one.from.addr);
        one.from.port = ntohs(in.sin6_port);
    }
    return one;
}

// The next one, waited for. If none comes, it has neither text nor sender.
inline Datagram awaited_datagram(const Fd &socket) {
    std::optional<Datagram> one;
    (void)wait_until([&] { return (one = next_datagram(socket)).has_value(); });
    return one.value_or(Datagram{});
}

} // namespace podlane::test
