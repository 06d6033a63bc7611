// SPDX-License-Identifier: MIT
#include "loader/edt.hpp"

#include "loader/net/qdisc.hpp"

namespace podlane {
namespace {

constexpr std::uint32_t kHandle = 0x504c0000; // "PL"
// More packets than a limit's burst holds, at any rate too low for GSO packets: the limit drops, not the qdisc.
constexpr std::uint32_t kMostPackets = 50000;

} // namespace

bool has_fq() {
    auto netlink = net::Netlink::open();
    const Result<bool> has = netlink ? net::has_fq(*netlink) : Result<bool>(std::move(netlink).error());
    return has && *has;
}

Result<bool> put_fq(std::uint32_t ifindex) {
    net::Netlink netlink = TRY(net::Netlink::open());
    return net::set_fq(netlink, {ifindex, kHandle, kMostPackets});
}

Result<void> remove_fq(std::uint32_t ifindex) {
    net::Netlink netlink = TRY(net::Netlink::open());
    TRY(net::remove_root_qdisc(netlink, ifindex, kHandle));
    return {};
}

} // namespace podlane
