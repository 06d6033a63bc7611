// SPDX-License-Identifier: MIT
// Real sockets in namespaces: an echo server that knows who called, and clients that say what happened to them.
#pragma once

#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "loader/net/namespace.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace podlane::test {

using podlane::to_string;

enum class Transport { tcp, udp };
std::string to_string(Transport transport);

struct Endpoint {
    ip_addr addr{};
    std::uint16_t port = 0;
};
std::string to_string(const Endpoint &endpoint);

// A socket made inside `where`, bound to `local` if that has an address or a port. Port 0 is any.
Fd open_socket(const net::Namespace &where, Transport transport, bool ipv4, const Endpoint &local = {});
// A raw one of an IP protocol without ports, between these addresses. What it receives by IPv4 begins with the header.
Fd open_raw(const net::Namespace &where, int protocol, const ip_addr &local, const ip_addr &peer);
// For datagrams that are refused rather than cut up.
Fd open_unfragmented(const net::Namespace &where, bool ipv4);
int set_option(const Fd &socket, int level, int name, int value); // 0 or errno
Endpoint local_of(const Fd &socket);

// How long to wait for what must come, and how long for what must not.
std::chrono::milliseconds patience();
std::chrono::milliseconds quiet();

// 0, or the errno the connection or the transfer ended with; ETIMEDOUT if nothing came in time.
int connect_to(const Fd &socket, const Endpoint &server, std::chrono::milliseconds timeout = patience());
// A socket of `where` that is connected to `server`; the test ends if it does not connect.
Fd connected(const net::Namespace &where, Transport transport, const Endpoint &server, const Endpoint &local = {});
// The next connection to a listener; the test ends if none comes. The last packet of its handshake may be under way
// yet.
Fd accepted(const Fd &listener);
int send_text(const Fd &socket, const std::string &text);
// One datagram of a socket that is not connected, without waiting. False: refused.
bool send_datagram(const Fd &socket, const Endpoint &to, std::string_view text);
struct Received {
    int error = 0;
    std::string text{};
};
Received receive(const Fd &socket, std::size_t most = 65536, std::chrono::milliseconds timeout = patience());
// One connection: connect, send, expect the same back.
int ask(const net::Namespace &where, Transport transport, const Endpoint &server, const std::string &text = "hello",
        const Endpoint &local = {});
// Sends `bytes` over a connected TCP socket, and expects the same back meanwhile; `midway` is called once at half.
int transfer(
    const Fd &socket, std::size_t bytes, const std::function<void()> &midway = [] {});
// Echoes everything, over TCP and UDP on the same port of every address, until it goes.
class EchoServer {
  public:
    EchoServer(const net::Namespace &where, bool ipv4, std::uint16_t port);
    ~EchoServer();
    EchoServer(const EchoServer &) = delete;
    EchoServer &operator=(const EchoServer &) = delete;

    // Source addresses of the callers so far, connections and datagrams, in order.
    [[nodiscard]] std::vector<ip_addr> callers() const;

  private:
    void serve();
    void accept_one();
    void answer_datagrams();
    bool pump(int fd, std::string &pending);

    Fd stop_;
    Fd listener_;
    Fd datagrams_;
    std::map<int, std::string> connections_; // what is still to be sent back
    mutable std::mutex mutex_;
    std::vector<ip_addr> callers_;
    std::thread thread_;
};

} // namespace podlane::test
