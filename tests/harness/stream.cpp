// SPDX-License-Identifier: MIT
#include "tests/harness/stream.hpp"

#include "tests/harness/process.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <vector>

namespace podlane::test {
namespace {

constexpr std::uint64_t kUnderWay = 32;
constexpr std::uint64_t kBytesUnderWay = 32 * 1024;
constexpr int kLeastPriority = 19;
constexpr int kTick = 20; // ms, after which an end is noticed

} // namespace

Stream::Stream(const net::Namespace &where, Transport transport, const Endpoint &server)
    : transport_(transport), socket_(open_socket(where, transport, is_ipv4(server.addr))) {
    if (const int error = connect_to(socket_, server); error != 0)
        throw std::runtime_error("stream to " + to_string(server) + ": error " + std::to_string(error));
    thread_ = std::thread([this] {
        // Never idle, and last in turn: what it is there to watch is not to wait for it.
        setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLeastPriority);
        transport_ == Transport::udp ? run_datagrams() : run_connection();
    });
}

Stream::~Stream() {
    stop_ = true;
    if (thread_.joinable())
        thread_.join();
}

bool Stream::wait(short events, int milliseconds) const {
    pollfd one{socket_.get(), events, 0};
    return poll(&one, 1, milliseconds) == 1;
}

void Stream::run_datagrams() {
    std::array<std::uint64_t, 16> datagram{};
    while (!stop_) {
        while (sent_ - received_ < kUnderWay) {
            datagram[0] = sent_;
            if (send(socket_.get(), datagram.data(), sizeof datagram, 0) != sizeof datagram)
                break;
            ++sent_;
        }
        if (!wait(POLLIN, kTick))
            continue;
        while (recv(socket_.get(), datagram.data(), sizeof datagram, 0) == sizeof datagram)
            ++received_;
    }
}

// More under way would be a test of how a busy machine's receive queues overflow.
void Stream::run_connection() {
    std::vector<char> out(kBytesUnderWay, 'x');
    std::vector<char> in(kBytesUnderWay);
    std::uint64_t given = 0;
    while (!stop_) {
        const std::uint64_t room = kBytesUnderWay - (given - received_);
        if (const ssize_t now = room == 0 ? 0 : send(socket_.get(), out.data(), room, MSG_NOSIGNAL); now > 0)
            given += static_cast<std::uint64_t>(now);
        if (!wait(POLLIN, kTick))
            continue;
        if (const ssize_t now = recv(socket_.get(), in.data(), in.size(), 0); now > 0)
            received_ += static_cast<std::uint64_t>(now);
    }
}

Stream::Account Stream::end() {
    stop_ = true;
    thread_.join();
    if (transport_ == Transport::udp) {
        std::array<std::uint64_t, 16> datagram{};
        while (received_ < sent_ && wait(POLLIN, static_cast<int>(patience().count())))
            while (recv(socket_.get(), datagram.data(), sizeof datagram, 0) == sizeof datagram)
                ++received_;
        return {sent_, sent_ - received_, received_};
    }
    tcp_info facts{};
    socklen_t size = sizeof facts;
    if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &facts, &size) != 0)
        throw std::runtime_error("TCP_INFO");
    // A segment that was sent again and had arrived all the same was late, on a busy machine, and not lost.
    const std::uint64_t again = facts.tcpi_total_retrans;
    return {facts.tcpi_data_segs_out, again > facts.tcpi_dsack_dups ? again - facts.tcpi_dsack_dups : 0, received_};
}

} // namespace podlane::test
