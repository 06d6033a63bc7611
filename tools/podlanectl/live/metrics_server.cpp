// SPDX-License-Identifier: MIT
#include "tools/podlanectl/live/metrics_server.hpp"

#include "loader/privilege.hpp"
#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "tools/podlanectl/cli/cli.hpp"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

namespace podlane::ctl {
namespace {

constexpr std::size_t kMostRequest = 8192;
// To read maps, and to ask which programs an uplink has: the kernel requires CAP_NET_ADMIN of that.
constexpr std::array kKeptCapabilities = {CAP_BPF, CAP_NET_ADMIN};

volatile std::sig_atomic_t stopped = 0;
void stop(int) { stopped = 1; }

// An IPv4 address is bound in its mapped form: one kind of socket for both.
Result<sockaddr_in6> parse_listen(const std::string &text) {
    const Error wrong = usage_error("--listen \"" + text + "\" is not ADDR:PORT",
                                    "write 127.0.0.1:9632, [::1]:9632, or [::]:9632 for every address");
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos)
        return wrong;
    std::string host = text.substr(0, colon);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (!bracketed && host.find(':') != std::string::npos)
        return wrong;
    const auto addr = parse_ip(bracketed ? host.substr(1, host.size() - 2) : host);
    std::uint16_t port = 0;
    const char *end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (!addr || error != std::errc{} || last != end)
        return wrong;
    sockaddr_in6 where{};
    where.sin6_family = AF_INET6;
    where.sin6_port = htons(port);
    std::memcpy(&where.sin6_addr, &*addr, sizeof where.sin6_addr);
    return where;
}

Result<Fd> listen_at(const std::string &text) {
    constexpr int kBacklog = 16;
    const sockaddr_in6 where = TRY(parse_listen(text));
    Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        bind(fd.get(), reinterpret_cast<const sockaddr *>(&where), sizeof where) != 0 ||
        listen(fd.get(), kBacklog) != 0)
        return system_error(ErrorCode::io_failure, "listening on " + text, errno);
    return fd;
}

// Up to the empty line; empty if it does not arrive.
std::string read_request(int client) {
    std::string request;
    std::array<char, 1024> chunk{};
    while (request.size() < kMostRequest && request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(client, chunk.data(), chunk.size(), 0);
        if (got <= 0)
            return {};
        request.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return request;
}

std::string response(std::string_view status, std::string_view type, const std::string &body) {
    return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

std::string answer(const std::string &request, const World &world, const MakeMetrics &make) {
    constexpr std::string_view kPlain = "text/plain; charset=utf-8";
    if (!request.starts_with("GET "))
        return response("405 Method Not Allowed", kPlain, "only GET\n");
    const std::string path = request.substr(4, request.find_first_of(" ?\r", 4) - 4);
    if (path == "/")
        return response("200 OK", "text/html; charset=utf-8", "<a href=\"/metrics\">Podlane's metrics</a>\n");
    if (path != "/metrics")
        return response("404 Not Found", kPlain, "there is /metrics\n");
    const auto format = request.find("application/openmetrics-text") == std::string::npos
                            ? output::MetricsFormat::prometheus
                            : output::MetricsFormat::openmetrics;
    const auto made = make(world, format);
    if (!made)
        return response("503 Service Unavailable", kPlain, made.error().message + "\n");
    return response("200 OK", output::Exposition::content_type(format), *made);
}

void send_all(int client, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = send(client, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
}

void serve_one(int listener, const World &world, const MakeMetrics &make) {
    constexpr timeval kPatience{2, 0};
    const Fd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!client)
        return;
    setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    if (const std::string request = read_request(client.get()); !request.empty())
        send_all(client.get(), answer(request, world, make));
}

void stop_on_signals() {
    struct sigaction action {};
    action.sa_handler = &stop; // without SA_RESTART: poll(2) returns
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

} // namespace

Result<int> serve_metrics(const std::string &listen_on, const World &world, const MakeMetrics &make) {
    const Fd listener = TRY(listen_at(listen_on));
    TRY(keep_capabilities(kKeptCapabilities));
    stop_on_signals();
    std::fprintf(world.err, "serving http://%s/metrics\n", listen_on.c_str());
    std::fflush(world.err);
    constexpr int kLookAgainMs = 1000; // bounds the delay of a signal that arrives just before poll(2)
    while (stopped == 0) {
        pollfd wait{listener.get(), POLLIN, 0};
        if (poll(&wait, 1, kLookAgainMs) > 0)
            serve_one(listener.get(), world, make);
    }
    return 0;
}

} // namespace podlane::ctl
