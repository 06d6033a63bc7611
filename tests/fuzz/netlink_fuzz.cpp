// SPDX-License-Identifier: MIT
// Answers the requests of loader/net with hostile bytes, as a kernel with an error or of a later version might.
//
// The program is linked with --wrap=sendmsg,recvfrom: no request reaches the kernel. The first byte chooses the
// question. Then come messages: two bytes of type, two of length, the rest; the number of the request is filled in.
// When the bytes end, so does each answer.
#include "loader/net/address.hpp"
#include "loader/net/conntrack.hpp"
#include "loader/net/filter.hpp"
#include "loader/net/forwarding.hpp"
#include "loader/net/ipsec.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/next_hop.hpp"
#include "loader/net/nftables.hpp"
#include "loader/net/packet_rules.hpp"
#include "loader/net/prefix_set.hpp"
#include "loader/net/qdisc.hpp"
#include "loader/net/route.hpp"
#include "loader/net/rule.hpp"
#include "tests/fuzz/require.hpp"

#include <linux/fib_rules.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using namespace podlane;

struct Kernel {
    const std::uint8_t *data = nullptr;
    std::size_t size = 0;
    std::uint32_t first = 0, requests = 0, ended = 0;

    std::uint16_t number() {
        std::uint16_t value = 0;
        const std::size_t taken = std::min(size, sizeof value);
        if (taken > 0)
            std::memcpy(&value, data, taken);
        data += taken;
        size -= taken;
        return value;
    }
    std::size_t answer(char *into, std::size_t room) {
        nlmsghdr header{};
        header.nlmsg_seq = first;
        std::size_t body = 0;
        if (size > 0) {
            header.nlmsg_type = number();
            const std::uint16_t said = number();
            body = std::min<std::size_t>({said, size, room - sizeof header});
            header.nlmsg_len = static_cast<std::uint32_t>(sizeof header) + said;
        } else {
            header.nlmsg_type = NLMSG_DONE;
            header.nlmsg_len = sizeof header;
            header.nlmsg_seq += ended++ % std::max(requests, 1U);
        }
        std::memcpy(into, &header, sizeof header);
        if (body > 0)
            std::memcpy(into + sizeof header, data, body);
        data += body;
        size -= body;
        return sizeof header + body;
    }
};
Kernel kernel;

const ip_addr address = ipv4_from_host_order(0xC0000201);
const Prefix prefix{address, 128};
const ip_addr address6{{0xb80d0120, 0, 0, 0x01000000}};

void check_rules(const Result<std::vector<net::FoundRule>> &rules, const ip_addr &to) {
    if (rules)
        for (const net::FoundRule &rule : *rules) {
            require(rule.text.starts_with("from all") && (rule.table == 0 || rule.action == FR_ACT_TO_TBL));
            (void)rule.is_for(to);
        }
}

// Whatever the bounds are, they are those of prefixes, or of none.
void check_prefixes(const Result<std::optional<std::vector<Prefix>>> &prefixes) {
    if (prefixes && *prefixes)
        for (const Prefix &one : **prefixes)
            require(one == masked(one) && one.length <= address_bits(one.addr));
}

// -1 is the number of no namespace.
void check_peer(net::Netlink &netlink) {
    static const auto here = net::Namespace::current();
    require(static_cast<bool>(here));
    net::Link veth;
    veth.peer_ifindex = 2;
    veth.peer_nsid = -1;
    const auto numberless = net::has_peer_in(netlink, veth, *here);
    require(!numberless || !*numberless);
    veth.peer_nsid = 0;
    (void)net::has_peer_in(netlink, veth, *here);
}

void ask_netfilter(std::uint8_t question, net::Netlink &netlink) {
    constexpr const char *kTable = "podlane-pods", *kChain = "postrouting";
    const net::AddressSets sets{kTable, "pods4", "pods6"};
    const std::array<const char *, 1> names{"pods"};
    switch (question) {
    case 13:
        (void)net::rule_comments(netlink, kTable, kChain);
        (void)net::find_base_chain(netlink, kTable, kChain);
        (void)net::counted_packets(netlink, kTable, kChain);
        break;
    case 14:
        (void)net::packet_rules(netlink);
        break;
    case 17:
        (void)net::forget_connections_from(netlink, std::array{address}, std::array{prefix});
        break;
    case 18:
        (void)net::forget_connections_from(netlink, std::array{address6}, std::array{host_prefix(address6)});
        break;
    case 19:
        (void)net::has_elements(netlink, sets, std::array{address, address6});
        (void)net::has_interface(netlink, sets.table, names, "cali0");
        break;
    case 23:
        check_prefixes(net::list_prefixes(netlink, kTable, "cluster4"));
        (void)net::list_set_addresses(netlink, kTable, "pods4");
        break;
    default:
        (void)net::tables_with_mark(netlink, "podlane ");
        (void)net::has_rules(netlink, kTable, kChain);
    }
}

void ask(std::uint8_t question, net::Netlink &netlink) {
    constexpr std::uint32_t kLink = 7;
    constexpr std::uint8_t kQuestions = 28;
    question %= kQuestions;
    switch (question) {
    case 0:
        (void)net::list_links(netlink);
        break;
    case 1:
        (void)net::find_link(netlink, kLink);
        break;
    case 2:
        (void)net::list_addresses(netlink, kLink);
        break;
    case 3:
        (void)net::list_routes(netlink, kLink, net::Family::ipv4);
        break;
    case 4:
        (void)net::list_routes(netlink, kLink, net::Family::ipv6, net::kAllTables);
        break;
    case 5:
        (void)net::route_to(netlink, address);
        break;
    case 6:
        (void)net::default_route(netlink, net::Family::ipv6);
        break;
    case 7:
        (void)net::find_neighbour(netlink, kLink, address);
        break;
    case 8:
        (void)net::has_proxy(netlink, kLink, address);
        break;
    case 9:
        (void)net::has_rule(netlink, {.source = host_prefix(address), .table = kLink, .priority = kLink});
        break;
    case 10:
        (void)net::ingress_qdisc(netlink, kLink);
        break;
    case 11:
        (void)net::has_fq(netlink);
        (void)net::has_htb(netlink);
        break;
    case 12:
        (void)net::list_filters(netlink, kLink, net::ClsactSide::ingress);
        break;
    case 15:
        (void)net::links_with_ingress_qdisc(netlink);
        break;
    case 16:
        (void)net::list_forwarding(netlink, net::Family::ipv4);
        (void)net::list_forwarding(netlink, net::Family::ipv6);
        break;
    case 20:
        (void)net::has_ipsec_policies();
        break;
    case 21:
        (void)net::find_route(netlink, {prefix, {}, kLink});
        break;
    case 22:
        check_rules(net::list_rules(netlink, net::Family::ipv4), address);
        check_rules(net::list_rules(netlink, net::Family::ipv6), address6);
        break;
    case 24:
        (void)net::find_route_by(netlink, address, kLink);
        (void)net::find_route_by(netlink, address6, kLink);
        break;
    case 25:
        (void)net::htb_class_rate(netlink, kLink, 1);
        break;
    case 27:
        check_peer(netlink);
        break;
    default:
        ask_netfilter(question, netlink);
    }
}

} // namespace

extern "C" {

ssize_t __wrap_sendmsg(int, const msghdr *message, int) { // NOLINT(bugprone-reserved-identifier): ld(1) --wrap
    nlmsghdr header{};
    std::memcpy(&header, message->msg_iov->iov_base, sizeof header);
    kernel.first = header.nlmsg_seq;
    kernel.requests = static_cast<std::uint32_t>(message->msg_iovlen);
    kernel.ended = 0;
    return 1;
}

ssize_t __wrap_recvfrom(int, void *into, std::size_t room, int,
                        sockaddr *sender, // NOLINT(bugprone-reserved-identifier)
                        socklen_t *sender_size) {
    std::memset(sender, 0, *sender_size);
    return static_cast<ssize_t>(kernel.answer(static_cast<char *>(into), room));
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static auto netlink = net::Netlink::open();
    require(static_cast<bool>(netlink));
    if (size == 0)
        return 0;
    kernel = {data + 1, size - 1};
    ask(data[0], *netlink);
    return 0;
}
}
