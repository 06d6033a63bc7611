// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the process that queries the kernel with CAP_NET_ADMIN for the metrics server: whoever has
// taken over the server may send it anything. The bytes are a packet, and the beginning of one of the right size.
//
// The program is linked with --wrap for each function by which the kernel is queried: what is queried are the programs
// on one of an interface's two hooks, or a counter.
#include "loader/probe.hpp"
#include "tools/podlanectl/live/admin_queries.hpp"

#include "tests/fuzz/require.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

namespace {

using namespace podlane;

using Packet = std::vector<std::uint8_t>;

ctl::AdminQuery query; // of the packet, if it has the size of one
bool has_queried = false;

bool is_query(const Packet &packet) {
    const bool is_hook = query.hook == Hook::ingress || query.hook == Hook::egress;
    return packet.size() == sizeof query && is_hook &&
           std::ranges::find(query.network, '\0') != std::end(query.network);
}

void check(const Packet &packet) {
    query = {};
    if (packet.size() == sizeof query)
        std::memcpy(&query, packet.data(), sizeof query);
    has_queried = false;
    const auto answer = ctl::answer_to(packet);
    require(answer.has_value() == is_query(packet));
    if (!answer)
        require(!has_queried);
    else if (query.ifindex == 0)
        require(has_queried && answer->count == 0);
    else
        require(has_queried && !answer->has_drops && answer->count == answer->ids.size());
}

void check_hook(int ifindex, bool is_ingress) {
    require(static_cast<std::uint32_t>(ifindex) == query.ifindex && is_ingress == (query.hook == Hook::ingress));
    has_queried = true;
}

} // namespace

extern "C" { // NOLINTBEGIN(bugprone-reserved-identifier): ld(1) --wrap

int __wrap_bpf_prog_query(int ifindex, enum bpf_attach_type type, __u32 flags, __u32 *, __u32 *ids, __u32 *count) {
    require(flags == 0 && (type == kTcxIngress || type == kTcxEgress));
    if (ids == nullptr) // whether the kernel has tcx
        return 0;
    check_hook(ifindex, type == kTcxIngress);
    std::fill_n(ids, *count, 7U);
    return 0;
}

int __wrap_bpf_tc_query(const struct bpf_tc_hook *hook, struct bpf_tc_opts *options) {
    require(hook->attach_point == BPF_TC_INGRESS || hook->attach_point == BPF_TC_EGRESS);
    check_hook(hook->ifindex, hook->attach_point == BPF_TC_INGRESS);
    options->prog_id = 7;
    return 0;
}

int __wrap_nl_connect(struct nl_sock *, int) {
    require(query.ifindex == 0);
    has_queried = true;
    return -1;
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    Packet packet(data, data + size);
    check(packet);
    packet.resize(sizeof query);
    check(packet);
    return 0;
}
} // NOLINTEND(bugprone-reserved-identifier)
