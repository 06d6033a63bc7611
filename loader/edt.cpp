#include "loader/edt.hpp"

#include "loader/qdisc.hpp"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <cerrno>

namespace podlane {
namespace {

constexpr std::uint32_t kHandle = 0x504c0000; // "PL"
// Packets: more than a limit's burst holds at any rate at which they are not GSO packets. The limit drops, not the
// qdisc.
constexpr std::uint32_t kMostPackets = 50000;
constexpr int kLoopback = 1;

QdiscRequest request_for(std::uint16_t type, std::uint16_t flags, std::uint32_t ifindex) {
    return {type, flags, ifindex, TC_H_ROOT, kHandle};
}

void add_kind(QdiscRequest &request) { request.add(TCA_KIND, "fq", sizeof "fq"); }

// Not the pacing of sockets: it would switch off the kernel's own, by which pl_pace works.
Result<int> ask_for_fq(std::uint16_t flags, std::uint32_t ifindex) {
    QdiscRequest request = request_for(RTM_NEWQDISC, flags, ifindex);
    add_kind(request);
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
    QdiscRequest request = request_for(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, kLoopback);
    add_kind(request);
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
    QdiscRequest request = request_for(RTM_DELQDISC, 0, ifindex);
    const int answer = TRY(request.ask());
    if (answer != 0 && answer != EINVAL && answer != ENOENT && answer != ENODEV)
        return system_error(ErrorCode::netlink, "removing the qdisc of interface " + std::to_string(ifindex), answer);
    return {};
}

} // namespace podlane
