// SPDX-License-Identifier: MIT
#include "tests/harness/talk.hpp"

#include "tests/harness/process.hpp"

#include "tests/harness/wire.hpp"
#include "tests/harness/throw_errno.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace podlane::test {
namespace {

constexpr std::size_t kChunk = 256 * 1024;

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = sizeof(sockaddr_storage);
    sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
};

SocketAddress to_socket(const Endpoint &endpoint, bool ipv4) {
    SocketAddress out;
    if (ipv4) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(endpoint.port);
        in.sin_addr.s_addr = endpoint.addr.word[3];
        std::memcpy(&out.storage, &in, sizeof(in));
        out.size = sizeof(in);
    } else {
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(endpoint.port);
        std::memcpy(&in.sin6_addr, &endpoint.addr, sizeof(endpoint.addr));
        std::memcpy(&out.storage, &in, sizeof(in));
        out.size = sizeof(in);
    }
    return out;
}

Endpoint from_socket(const SocketAddress &address) {
    Endpoint out;
    if (address.storage.ss_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, &address.storage, sizeof(in));
        out = {{{0, 0, htonl(0xffff), in.sin_addr.s_addr}}, ntohs(in.sin_port)};
    } else {
        sockaddr_in6 in{};
        std::memcpy(&in, &address.storage, sizeof(in));
        std::memcpy(&out.addr, &in.sin6_addr, sizeof(out.addr));
        out.port = ntohs(in.sin6_port);
    }
    return out;
}

// Waits for any of `events`; 0 or ETIMEDOUT.
int wait_for(int fd, short events, std::chrono::milliseconds timeout = patience()) {
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(timeout.count()));
    return ready == 1 ? 0 : ETIMEDOUT;
}

int pending_error(int fd) {
    int error = 0;
    socklen_t size = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

} // namespace

std::chrono::milliseconds patience() { return std::chrono::seconds(slow() ? 60 : 10); }
std::chrono::milliseconds quiet() { return std::chrono::milliseconds(slow() ? 1500 : 250); }

std::string to_string(Transport transport) { return transport == Transport::tcp ? "tcp" : "udp"; }

std::string to_string(const Endpoint &endpoint) {
    const std::string addr = podlane::to_string(endpoint.addr);
    return (is_ipv4(endpoint.addr) ? addr : "[" + addr + "]") + ":" + std::to_string(endpoint.port);
}

Fd open_socket(const net::Namespace &where, Transport transport, bool ipv4, const Endpoint &local) {
    auto inside = net::enter(where);
    if (!inside)
        throw std::runtime_error(inside.error().message);
    const int type = (transport == Transport::tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
    Fd made(socket(ipv4 ? AF_INET : AF_INET6, type, 0));
    if (!made)
        throw_errno("socket");
    if (!ipv4)
        set_option(made, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (local.port != 0)
        set_option(made, SOL_SOCKET, SO_REUSEADDR, 1);
    if (local.port != 0 || !is_none(local.addr)) {
        SocketAddress address = to_socket(local, ipv4);
        if (bind(made.get(), address.get(), address.size) != 0)
            throw_errno("bind to " + to_string(local));
    }
    return made;
}

Fd open_raw(const net::Namespace &where, int protocol, const ip_addr &local, const ip_addr &peer) {
    auto inside = net::enter(where);
    if (!inside)
        throw std::runtime_error(inside.error().message);
    const bool ipv4 = is_ipv4(local);
    Fd made(socket(ipv4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
    if (!made)
        throw_errno("socket");
    SocketAddress from = to_socket({local, 0}, ipv4), to = to_socket({peer, 0}, ipv4);
    if (bind(made.get(), from.get(), from.size) != 0 || connect(made.get(), to.get(), to.size) != 0)
        throw_errno("a raw socket from " + to_string(local) + " to " + to_string(peer));
    return made;
}

Fd open_unfragmented(const net::Namespace &where, bool ipv4) {
    Fd socket = open_socket(where, Transport::udp, ipv4);
    set_option(socket, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
               ipv4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO);
    return socket;
}

int set_option(const Fd &socket, int level, int name, int value) {
    return setsockopt(socket.get(), level, name, &value, sizeof(value)) == 0 ? 0 : errno;
}

Endpoint local_of(const Fd &socket) {
    SocketAddress address;
    if (getsockname(socket.get(), address.get(), &address.size) != 0)
        throw_errno("getsockname");
    return from_socket(address);
}

int connect_to(const Fd &socket, const Endpoint &server, std::chrono::milliseconds timeout) {
    SocketAddress address = to_socket(server, is_ipv4(server.addr));
    if (connect(socket.get(), address.get(), address.size) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    const int waited = wait_for(socket.get(), POLLOUT, timeout);
    return waited != 0 ? waited : pending_error(socket.get());
}

Fd connected(const net::Namespace &where, Transport transport, const Endpoint &server, const Endpoint &local) {
    Fd socket = open_socket(where, transport, is_ipv4(server.addr), local);
    if (const int error = connect_to(socket, server); error != 0)
        throw std::runtime_error("connecting " + (local.port == 0 ? "" : "from " + to_string(local) + " ") + "to " +
                                 to_string(server) + ": " + std::strerror(error));
    return socket;
}

Fd accepted(const Fd &listener) {
    if (const int error = wait_for(listener.get(), POLLIN, patience()); error != 0)
        throw std::runtime_error(std::string("waiting for a connection: ") + std::strerror(error));
    Fd made(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made)
        throw_errno("accept4");
    return made;
}

bool send_datagram(const Fd &socket, const Endpoint &to, std::string_view text) {
    SocketAddress address = to_socket(to, is_ipv4(to.addr));
    return sendto(socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.size) >=
           0;
}

int send_text(const Fd &socket, const std::string &text) {
    for (std::string_view left = text; !left.empty();) {
        const ssize_t sent = send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return errno;
        if (sent < 0 && wait_for(socket.get(), POLLOUT) != 0)
            return ETIMEDOUT;
        if (sent > 0)
            left.remove_prefix(static_cast<std::size_t>(sent));
    }
    return 0;
}

Received receive(const Fd &socket, std::size_t most, std::chrono::milliseconds timeout) {
    if (const int waited = wait_for(socket.get(), POLLIN, timeout); waited != 0)
        return {waited};
    std::string text(most, '\0');
    const ssize_t bytes = recv(socket.get(), text.data(), text.size(), 0);
    if (bytes < 0)
        return {errno};
    text.resize(static_cast<std::size_t>(bytes));
    return {0, std::move(text)};
}

int ask(const net::Namespace &where, Transport transport, const Endpoint &server, const std::string &text,
        const Endpoint &local) {
    const Fd socket = open_socket(where, transport, is_ipv4(server.addr), local);
    if (const int error = connect_to(socket, server); error != 0)
        return error;
    if (const int error = send_text(socket, text); error != 0)
        return error;
    std::string back;
    while (back.size() < text.size()) {
        Received part = receive(socket);
        if (part.error != 0)
            return part.error;
        if (part.text.empty())
            return ECONNRESET;
        back += part.text;
    }
    return back == text ? 0 : EBADMSG;
}

int transfer(const Fd &socket, std::size_t bytes, const std::function<void()> &midway) {
    const Bytes data = pattern(kChunk / 23 * 23); // whole periods, so that it can follow itself
    std::array<char, kChunk> buffer{};
    std::size_t sent = 0;
    std::size_t back = 0;
    bool halfway = false;
    while (back < bytes) {
        if (const int waited = wait_for(socket.get(), static_cast<short>(POLLIN | (sent < bytes ? POLLOUT : 0)));
            waited != 0)
            return waited;
        if (sent < bytes) {
            const std::size_t at = sent % data.size();
            const ssize_t now =
                send(socket.get(), data.data() + at, std::min(data.size() - at, bytes - sent), MSG_NOSIGNAL);
            if (now < 0 && errno != EAGAIN)
                return errno;
            sent += now > 0 ? static_cast<std::size_t>(now) : 0;
        }
        const ssize_t now = recv(socket.get(), buffer.data(), buffer.size(), 0);
        if (now == 0 || (now < 0 && errno != EAGAIN))
            return now == 0 ? ECONNRESET : errno;
        for (ssize_t i = 0; i < now; ++i)
            if (static_cast<std::uint8_t>(buffer[static_cast<std::size_t>(i)]) != data[(back + i) % data.size()])
                return EBADMSG;
        back += now > 0 ? static_cast<std::size_t>(now) : 0;
        if (!halfway && back >= bytes / 2) {
            halfway = true;
            midway();
        }
    }
    return 0;
}

EchoServer::EchoServer(const net::Namespace &where, bool ipv4, std::uint16_t port)
    : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(open_socket(where, Transport::tcp, ipv4, {ipv4 ? ipv4_from_host_order(0) : ip_addr{}, port})),
      datagrams_(open_socket(where, Transport::udp, ipv4, {ipv4 ? ipv4_from_host_order(0) : ip_addr{}, port})) {
    if (listen(listener_.get(), SOMAXCONN) != 0)
        throw_errno("listen");
    thread_ = std::thread([this] { serve(); });
}

EchoServer::~EchoServer() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
    for (const auto &[fd, pending] : connections_)
        close(fd);
}

std::vector<ip_addr> EchoServer::callers() const {
    const std::lock_guard lock(mutex_);
    return callers_;
}

void EchoServer::serve() {
    while (true) {
        std::vector<pollfd> all{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {datagrams_.get(), POLLIN, 0}};
        for (const auto &[fd, pending] : connections_)
            all.push_back(
                {fd, static_cast<short>((pending.size() < kChunk ? POLLIN : 0) | (pending.empty() ? 0 : POLLOUT)), 0});
        if (poll(all.data(), all.size(), -1) < 0 || all[0].revents != 0)
            return;
        if (all[1].revents != 0)
            accept_one();
        if (all[2].revents != 0)
            answer_datagrams();
        for (std::size_t i = 3; i < all.size(); ++i)
            if (all[i].revents != 0 && !pump(all[i].fd, connections_[all[i].fd])) {
                close(all[i].fd);
                connections_.erase(all[i].fd);
            }
    }
}

void EchoServer::accept_one() {
    SocketAddress caller;
    const int fd = accept4(listener_.get(), caller.get(), &caller.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    connections_[fd];
    const std::lock_guard lock(mutex_);
    callers_.push_back(from_socket(caller).addr);
}

void EchoServer::answer_datagrams() {
    std::string text(65536, '\0');
    SocketAddress caller;
    const ssize_t bytes = recvfrom(datagrams_.get(), text.data(), text.size(), 0, caller.get(), &caller.size);
    if (bytes < 0)
        return;
    {
        const std::lock_guard lock(mutex_);
        callers_.push_back(from_socket(caller).addr);
    }
    sendto(datagrams_.get(), text.data(), static_cast<std::size_t>(bytes), 0, caller.get(), caller.size);
}

// False when the connection is over.
bool EchoServer::pump(int fd, std::string &pending) {
    if (pending.size() < kChunk) {
        std::string more(kChunk, '\0');
        const ssize_t bytes = recv(fd, more.data(), more.size(), 0);
        if (bytes == 0 || (bytes < 0 && errno != EAGAIN))
            return false;
        if (bytes > 0)
            pending.append(more, 0, static_cast<std::size_t>(bytes));
    }
    const ssize_t sent = send(fd, pending.data(), pending.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return false;
    pending.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : 0);
    return true;
}

} // namespace podlane::test
