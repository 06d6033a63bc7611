// SPDX-License-Identifier: MIT
#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace podlane::net {
namespace {

constexpr std::size_t kReceiveSize = 32768; // the most a dump puts into one piece (kernel: netlink_dump)
constexpr std::size_t kMostRequests = 24;   // those of a shaper

// Writes number and port into each request and sends all; the first number, or 0 with errno set.
std::uint32_t send_all(nl_sock *socket, std::span<Message> batch) {
    std::array<iovec, kMostRequests> pieces{};
    if (batch.size() > pieces.size() || !std::all_of(batch.begin(), batch.end(), [](auto &m) { return m.fits(); })) {
        errno = EMSGSIZE;
        return 0;
    }
    std::uint32_t first = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        nlmsghdr *header = batch[i].header();
        header->nlmsg_seq = nl_socket_use_seq(socket);
        header->nlmsg_pid = nl_socket_get_local_port(socket);
        first = i == 0 ? header->nlmsg_seq : first;
        pieces[i] = {header, NLMSG_ALIGN(header->nlmsg_len)};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = batch.size();
    return sendmsg(nl_socket_get_fd(socket), &message, 0) < 0 ? 0 : first;
}

// One piece from the kernel, never from another process; -1 with errno set.
ssize_t receive(int fd, std::span<char> buffer) {
    for (;;) {
        sockaddr_nl sender{};
        socklen_t sender_size = sizeof sender;
        const ssize_t size =
            recvfrom(fd, buffer.data(), buffer.size(), MSG_TRUNC, reinterpret_cast<sockaddr *>(&sender), &sender_size);
        if (size < 0 && errno == EINTR)
            continue;
        if (size >= 0 && sender.nl_pid != 0)
            continue;
        if (size > static_cast<ssize_t>(buffer.size())) {
            errno = EMSGSIZE;
            return -1;
        }
        return size;
    }
}

// The text attribute that follows an acknowledgement (NETLINK_EXT_ACK, NETLINK_CAP_ACK) or the end of a dump.
std::string ack_text(nlmsghdr *header, std::size_t fixed_size) {
    if ((header->nlmsg_flags & NLM_F_ACK_TLVS) == 0)
        return {};
    const int rest = static_cast<int>(header->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(NLMSG_ALIGN(fixed_size)));
    auto *first = reinterpret_cast<nlattr *>(static_cast<char *>(NLMSG_DATA(header)) + NLMSG_ALIGN(fixed_size));
    return rest > 0 ? Attributes<NLMSGERR_ATTR_MAX>(first, rest).text(NLMSGERR_ATTR_MSG) : std::string{};
}

// As the kernel says it: 0 or a negative errno.
int errno_of(int said) {
    constexpr int kLargestErrno = 4095;
    return said > 0 || said < -kLargestErrno ? EPROTO : -said;
}

// Takes an acknowledgement or the end of a dump; false for any other message.
bool finish(nlmsghdr *header, Outcome &outcome) {
    if (header->nlmsg_type == NLMSG_ERROR && header->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
        const auto *answer = static_cast<nlmsgerr *>(NLMSG_DATA(header));
        const bool capped = answer->error == 0 || (header->nlmsg_flags & NLM_F_CAPPED) != 0;
        outcome.error = errno_of(answer->error);
        if (capped)
            outcome.text = ack_text(header, sizeof *answer);
        return true;
    }
    if (header->nlmsg_type == NLMSG_DONE) {
        int error = 0;
        if (header->nlmsg_len >= NLMSG_LENGTH(sizeof error))
            std::memcpy(&error, NLMSG_DATA(header), sizeof error);
        outcome.error = errno_of(error);
        outcome.text = ack_text(header, sizeof error);
        return true;
    }
    return false;
}

std::vector<Outcome> all_failed(std::size_t count, int error) {
    return std::vector<Outcome>(count, Outcome{error, {}, false, false});
}

} // namespace

Message &Message::put(int attribute, const ip_addr &addr) {
    return is_ipv4(addr) ? put_bytes(attribute, &addr.word[3], sizeof addr.word[3])
                         : put_bytes(attribute, &addr, sizeof addr);
}

Message &Message::put_bytes(int attribute, const void *data, std::size_t size) {
    fits_ = message_ && nla_put(message_.get(), attribute, static_cast<int>(size), data) == 0 && fits_;
    return *this;
}

Error Outcome::as_error(std::string_view doing) const {
    const ErrorCode code = error == ENODEV   ? ErrorCode::missing
                           : error == EEXIST ? ErrorCode::already_exists
                                             : ErrorCode::netlink;
    Error result = system_error(code, doing, error);
    if (!text.empty())
        result.message += " (kernel: " + text + ")";
    return result;
}

std::vector<Outcome> request_all(Netlink &netlink, std::span<Message> batch, const OnMessage &on_message) {
    const std::uint32_t first = send_all(netlink.socket(), batch);
    if (first == 0)
        return all_failed(batch.size(), errno);
    std::vector<Outcome> outcomes(batch.size());
    alignas(nlmsghdr) std::array<char, kReceiveSize> buffer; // NOLINT: filled by recv, and only as far as needed
    const auto wants_answer = [](Message &one) { return (one.header()->nlmsg_flags & (NLM_F_ACK | NLM_F_DUMP)) != 0; };
    for (auto open = std::ranges::count_if(batch, wants_answer); open > 0;) {
        const ssize_t size = receive(nl_socket_get_fd(netlink.socket()), buffer);
        if (size < 0)
            return all_failed(batch.size(), errno);
        int rest = static_cast<int>(size);
        for (auto *header = reinterpret_cast<nlmsghdr *>(buffer.data()); nlmsg_ok(header, rest);
             header = nlmsg_next(header, &rest)) {
            const std::uint32_t index = header->nlmsg_seq - first;
            if (index >= batch.size())
                continue; // a late answer to an exchange that failed
            outcomes[index].interrupted |= (header->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
            if (finish(header, outcomes[index])) {
                outcomes[index].answered = true;
                if (!wants_answer(batch[index]) && !outcomes[index].ok())
                    return outcomes;
                --open;
            } else if (on_message)
                on_message(header);
        }
    }
    return outcomes;
}

Outcome request(Netlink &netlink, Message message, const OnMessage &on_message) {
    return request_all(netlink, {&message, 1}, on_message)[0];
}

Result<bool> changed(const Outcome &outcome, std::initializer_list<int> nothing_to_do, std::string_view doing) {
    if (outcome.ok())
        return true;
    if (outcome.is(nothing_to_do))
        return false;
    return outcome.as_error(doing);
}

} // namespace podlane::net
