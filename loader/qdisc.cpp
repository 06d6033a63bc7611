#include "loader/qdisc.hpp"

#include "maps/fd.hpp"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace podlane {
namespace {

constexpr std::size_t kAnswer = 4096;

struct Answer {
    alignas(nlmsghdr) std::array<char, kAnswer> bytes{};
    std::size_t length = 0;

    [[nodiscard]] const nlmsghdr &header() const { return *reinterpret_cast<const nlmsghdr *>(bytes.data()); }
};

Result<void> receive(const Fd &socket, std::size_t least, Answer &answer) {
    const ssize_t length = recv(socket.get(), answer.bytes.data(), answer.bytes.size(), 0);
    if (length < static_cast<ssize_t>(NLMSG_LENGTH(least)))
        return system_error(ErrorCode::netlink, "asking for a qdisc", length < 0 ? errno : EBADMSG);
    answer.length = static_cast<std::size_t>(length);
    return {};
}

std::string kind_in(const Answer &answer) {
    std::size_t at = NLMSG_LENGTH(sizeof(tcmsg));
    while (at + sizeof(rtattr) <= answer.length) {
        rtattr attribute{};
        std::memcpy(&attribute, &answer.bytes.at(at), sizeof attribute);
        if (attribute.rta_len < sizeof attribute || at + attribute.rta_len > answer.length)
            break;
        const std::size_t size = attribute.rta_len - RTA_LENGTH(0);
        if (attribute.rta_type == TCA_KIND && size != 0)
            return {&answer.bytes.at(at + RTA_LENGTH(0)), size - 1}; // it ends with a NUL
        at += RTA_ALIGN(attribute.rta_len);
    }
    return {};
}

} // namespace

QdiscRequest::QdiscRequest(std::uint16_t type, std::uint16_t flags, std::uint32_t ifindex, std::uint32_t parent,
                           std::uint32_t handle) {
    header().nlmsg_type = type;
    header().nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK);
    tcmsg about{};
    about.tcm_family = AF_UNSPEC;
    about.tcm_ifindex = static_cast<int>(ifindex);
    about.tcm_parent = parent;
    about.tcm_handle = handle;
    std::memcpy(NLMSG_DATA(&header()), &about, sizeof about);
    header().nlmsg_len = NLMSG_LENGTH(sizeof about);
}

void QdiscRequest::add(std::uint16_t type, const void *value, std::size_t size) {
    const rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
    char *end = bytes_.data() + NLMSG_ALIGN(header().nlmsg_len);
    std::memcpy(end, &attribute, sizeof attribute);
    if (size != 0)
        std::memcpy(end + RTA_LENGTH(0), value, size);
    header().nlmsg_len = static_cast<std::uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + RTA_ALIGN(RTA_LENGTH(size)));
}

std::size_t QdiscRequest::begin(std::uint16_t type) {
    const std::size_t at = NLMSG_ALIGN(header().nlmsg_len);
    add(type, nullptr, 0);
    return at;
}

void QdiscRequest::end(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(header().nlmsg_len - at);
    std::memcpy(bytes_.data() + at, &length, sizeof length);
}

Result<int> QdiscRequest::ask(std::string *kind) {
    const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket || send(socket.get(), bytes_.data(), header().nlmsg_len, 0) < 0)
        return system_error(ErrorCode::netlink, "asking for a qdisc", errno);
    Answer answer;
    TRY(receive(socket, sizeof(int), answer));
    while (answer.header().nlmsg_type != NLMSG_ERROR) {
        if (kind != nullptr && answer.header().nlmsg_type == RTM_NEWQDISC)
            *kind = kind_in(answer);
        TRY(receive(socket, sizeof(int), answer));
    }
    nlmsgerr error{};
    std::memcpy(&error, NLMSG_DATA(&answer.header()), sizeof error);
    return -error.error;
}

Result<std::string> ingress_qdisc(std::uint32_t ifindex) {
    std::string kind;
    // The echo is the answer: before Linux 6.12 the kernel tells of it only to those that watch, without.
    QdiscRequest request(RTM_GETQDISC, NLM_F_ECHO, ifindex, TC_H_INGRESS, 0);
    const int answer = TRY(request.ask(&kind));
    if (answer != 0 && answer != ENOENT && answer != ENODEV)
        return system_error(ErrorCode::netlink, "asking for the qdisc of interface " + std::to_string(ifindex), answer);
    return kind;
}

} // namespace podlane
