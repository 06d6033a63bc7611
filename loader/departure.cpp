#include "loader/departure.hpp"

#include "maps/fd.hpp"

#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace podlane {
namespace {

constexpr std::uint32_t kHandle = 0x504c0000; // "PL"
// Packets: more than a limit's burst holds at any rate at which they are not GSO packets. The limit drops, not the
// qdisc.
constexpr std::uint32_t kMostPackets = 50000;
constexpr int kLoopback = 1;

class Request {
  public:
    Request(std::uint16_t type, std::uint16_t flags, std::uint32_t ifindex) {
        header().nlmsg_type = type;
        header().nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK);
        tcmsg about{};
        about.tcm_family = AF_UNSPEC;
        about.tcm_ifindex = static_cast<int>(ifindex);
        about.tcm_parent = TC_H_ROOT;
        about.tcm_handle = kHandle;
        std::memcpy(NLMSG_DATA(&header()), &about, sizeof about);
        header().nlmsg_len = NLMSG_LENGTH(sizeof about);
    }
    void add(std::uint16_t type, const void *value, std::size_t size) {
        const rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
        char *end = bytes_.data() + NLMSG_ALIGN(header().nlmsg_len);
        std::memcpy(end, &attribute, sizeof attribute);
        if (size != 0)
            std::memcpy(end + RTA_LENGTH(0), value, size);
        header().nlmsg_len = static_cast<std::uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + RTA_ALIGN(RTA_LENGTH(size)));
    }
    void add_number(std::uint16_t type, std::uint32_t value) { add(type, &value, sizeof value); }
    void add_kind() { add(TCA_KIND, "fq", sizeof "fq"); }
    // What is added until the end is within it.
    std::size_t begin(std::uint16_t type) {
        const std::size_t at = NLMSG_ALIGN(header().nlmsg_len);
        add(type, nullptr, 0);
        return at;
    }
    void end(std::size_t at) {
        const auto length = static_cast<std::uint16_t>(header().nlmsg_len - at);
        std::memcpy(bytes_.data() + at, &length, sizeof length);
    }
    // The kernel's answer: 0 or an errno.
    [[nodiscard]] Result<int> ask() {
        const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
        alignas(nlmsghdr) std::array<char, 1024> answer{};
        if (!socket || send(socket.get(), bytes_.data(), header().nlmsg_len, 0) < 0)
            return system_error(ErrorCode::netlink, "asking for a qdisc", errno);
        const ssize_t length = recv(socket.get(), answer.data(), answer.size(), 0);
        nlmsgerr error{};
        if (length < static_cast<ssize_t>(NLMSG_LENGTH(sizeof error)))
            return system_error(ErrorCode::netlink, "asking for a qdisc", length < 0 ? errno : EBADMSG);
        std::memcpy(&error, answer.data() + NLMSG_HDRLEN, sizeof error);
        return -error.error;
    }

  private:
    nlmsghdr &header() { return *reinterpret_cast<nlmsghdr *>(bytes_.data()); }
    alignas(nlmsghdr) std::array<char, 256> bytes_{};
};

// Not the pacing of sockets: it would switch off the kernel's own, by which pl_pace works.
Result<int> ask_for_fq(std::uint16_t flags, std::uint32_t ifindex) {
    Request request(RTM_NEWQDISC, flags, ifindex);
    request.add_kind();
    const std::size_t options = request.begin(TCA_OPTIONS);
    request.add_number(TCA_FQ_PLIMIT, kMostPackets);
    request.add_number(TCA_FQ_FLOW_PLIMIT, kMostPackets);
    request.add_number(TCA_FQ_RATE_ENABLE, 0);
    request.end(options);
    return request.ask();
}

} // namespace

bool has_fq() {
    // A request that no kernel can fulfil: one that has fq finds the number too short.
    Request request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, kLoopback);
    request.add_kind();
    const std::size_t options = request.begin(TCA_OPTIONS);
    request.add(TCA_FQ_PLIMIT, "", 1);
    request.end(options);
    const Result<int> answer = request.ask();
    return answer && (*answer == EINVAL || *answer == ERANGE);
}

Result<bool> put_fq(std::uint32_t ifindex) {
    int answer = TRY(ask_for_fq(NLM_F_CREATE | NLM_F_EXCL, ifindex));
    if (answer == EEXIST) // only if it is ours can it be changed
        answer = TRY(ask_for_fq(0, ifindex));
    switch (answer) {
    case 0:
        return true;
    case EEXIST:
    case EINVAL:
    case ENODEV:
    case ENOENT:
    case EOPNOTSUPP:
        return false;
    default:
        return system_error(ErrorCode::netlink, "putting the qdisc fq on interface " + std::to_string(ifindex), answer);
    }
}

Result<void> remove_fq(std::uint32_t ifindex) {
    Request request(RTM_DELQDISC, 0, ifindex);
    const int answer = TRY(request.ask());
    if (answer != 0 && answer != EINVAL && answer != ENOENT && answer != ENODEV)
        return system_error(ErrorCode::netlink, "removing the qdisc of interface " + std::to_string(ifindex), answer);
    return {};
}

} // namespace podlane
