// SPDX-License-Identifier: MIT
#include "tools/podlanectl/live/metrics_server.hpp"

#include "loader/privilege.hpp"
#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "maps/text.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/live/http.hpp"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

namespace podlane::ctl {
namespace {

using Time = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{2};

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
    const auto port = parse_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
    if (!addr || !port)
        return wrong;
    sockaddr_in6 where{};
    where.sin6_family = AF_INET6;
    where.sin6_port = htons(*port);
    std::memcpy(&where.sin6_addr, &*addr, sizeof where.sin6_addr);
    return where;
}

Result<Fd> listen_at(const std::string &text) {
    constexpr int kBacklog = 16;
    const sockaddr_in6 where = TRY(parse_listen(text));
    Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    const int off = 0;
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        bind(fd.get(), reinterpret_cast<const sockaddr *>(&where), sizeof where) != 0 ||
        listen(fd.get(), kBacklog) != 0)
        return system_error(ErrorCode::io_failure, "listening on " + text, errno);
    return fd;
}

std::string response(std::string_view status, std::string_view type, const std::string &body) {
    return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

// A client can send requests without a pause: the metrics are read again only after ten times as long as that took.
class Metrics {
  public:
    Metrics(const AdminQueries &queries, const MakeMetrics &make) : queries_(queries), make_(make) {}

    const Result<std::string> &now(output::MetricsFormat format) {
        constexpr int kShare = 10;
        Made &made = made_[static_cast<std::size_t>(format)];
        const Time::time_point begin = Time::now();
        if (begin >= made.next) {
            made.text = make_(queries_, format);
            const Time::time_point end = Time::now();
            made.next = end + kShare * (end - begin);
        }
        return made.text;
    }

  private:
    struct Made {
        Time::time_point next{};
        Result<std::string> text{std::string{}};
    };
    const AdminQueries &queries_;
    const MakeMetrics &make_;
    std::array<Made, 2> made_{};
};

std::string answer(const HttpRequest &request, Metrics &metrics) {
    constexpr std::string_view kPlain = "text/plain; charset=utf-8";
    switch (request.target) {
    case HttpTarget::too_long:
        return response("431 Request Header Fields Too Large", kPlain, "the request is too long\n");
    case HttpTarget::not_get:
        return response("405 Method Not Allowed\r\nAllow: GET", kPlain, "only GET\n");
    case HttpTarget::index:
        return response("200 OK", "text/html; charset=utf-8", "<a href=\"/metrics\">Podlane's metrics</a>\n");
    case HttpTarget::unknown:
        return response("404 Not Found", kPlain, "there is /metrics\n");
    case HttpTarget::metrics:
        break;
    }
    const auto &made = metrics.now(request.format);
    if (!made)
        return response("503 Service Unavailable", kPlain, made.error().message + "\n");
    return response("200 OK", output::Exposition::content_type(request.format), *made);
}

// A connection: its request so far, then what is left of the answer. Neither waits for the client.
class Client {
  public:
    explicit Client(Fd fd) : fd_(std::move(fd)), deadline_(Time::now() + kPatience) {}

    [[nodiscard]] pollfd wait() const { return {fd_.get(), static_cast<short>(answer_.empty() ? POLLIN : POLLOUT), 0}; }
    [[nodiscard]] bool is_late(Time::time_point now) const { return now >= deadline_; }

    // False once it has its answer, or has gone.
    bool proceed(Metrics &metrics) {
        if (answer_.empty()) {
            std::array<char, kMostRequest> chunk{};
            const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
            if (got <= 0)
                return got < 0 && (errno == EAGAIN || errno == EINTR);
            request_.append(chunk.data(), static_cast<std::size_t>(got));
            const auto request = read_http_request(request_);
            if (!request)
                return true;
            answer_ = answer(*request, metrics);
            deadline_ = Time::now() + kPatience;
        }
        const ssize_t sent = send(fd_.get(), answer_.data(), answer_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        answer_.erase(0, static_cast<std::size_t>(sent));
        return !answer_.empty();
    }

  private:
    Fd fd_;
    Time::time_point deadline_;
    std::string request_;
    std::string answer_;
};

// Clients that send or read slowly do not delay others: the oldest goes when there are too many, and each after a
// while.
class Server {
  public:
    Server(int listener, const AdminQueries &queries, const MakeMetrics &make)
        : listener_(listener), metrics_(queries, make) {}

    void serve_for(int milliseconds) {
        std::vector<pollfd> waits{{listener_, POLLIN, 0}};
        for (const Client &client : clients_)
            waits.push_back(client.wait());
        const bool any = poll(waits.data(), waits.size(), milliseconds) > 0;
        const Time::time_point now = Time::now();
        std::size_t i = 0;
        std::erase_if(clients_, [&](Client &client) {
            const bool ready = any && waits[++i].revents != 0;
            return (ready && !client.proceed(metrics_)) || client.is_late(now);
        });
        if (any && waits[0].revents != 0)
            accept_one();
    }

  private:
    void accept_one() {
        constexpr std::size_t kMostClients = 64;
        Fd client(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
        if (!client)
            return;
        if (clients_.size() == kMostClients)
            clients_.erase(clients_.begin());
        clients_.emplace_back(std::move(client));
    }

    int listener_;
    Metrics metrics_;
    std::vector<Client> clients_;
};

void stop_on_signals() {
    struct sigaction action {};
    action.sa_handler = &stop; // without SA_RESTART: poll(2) returns
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

} // namespace

Result<int> serve_metrics(const std::string &listen_on, const World &world, const MakeMetrics &make) {
    AdminProcess admin = TRY(AdminProcess::start());
    const Fd listener = TRY(listen_at(listen_on));
    TRY(keep_capabilities(std::array{CAP_BPF}));
    TRY(only_read());
    stop_on_signals();
    std::fprintf(world.err, "serving http://%s/metrics\n", listen_on.c_str());
    std::fflush(world.err);
    constexpr int kLookAgainMs =
        1000; // bounds the delay of a signal that arrives just before poll(2), and of a deadline
    const AdminQueries queries = admin.queries();
    Server server(listener.get(), queries, make);
    while (stopped == 0) {
        server.serve_for(kLookAgainMs);
        TRY(admin.check());
    }
    return 0;
}

} // namespace podlane::ctl
