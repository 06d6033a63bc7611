// SPDX-License-Identifier: MIT
#include "loader/net/netlink.hpp"

#include <linux/netlink.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>

namespace podlane::net {
namespace {

// A kernel without one of these (strict checking is 4.20's) still answers, with fewer words.
void switch_on(int fd, int option) {
    const int on = 1;
    (void)setsockopt(fd, SOL_NETLINK, option, &on, sizeof on);
}

} // namespace

void Netlink::Free::operator()(nl_sock *socket) const { nl_socket_free(socket); }

Result<Netlink> Netlink::open() { return open_protocol(NETLINK_ROUTE); }

Result<Netlink> Netlink::open_netfilter() { return open_protocol(NETLINK_NETFILTER); }

Result<Netlink> Netlink::open_ipsec() { return open_protocol(NETLINK_XFRM); }

Result<Netlink> Netlink::open_protocol(int protocol) {
    Netlink netlink(nl_socket_alloc());
    if (!netlink.socket_)
        return system_error(ErrorCode::netlink, "opening a netlink socket", ENOMEM);
    errno = 0; // libnl's own numbers are fewer
    if (const int failed = nl_connect(netlink.socket(), protocol); failed < 0)
        return errno != 0 ? system_error(ErrorCode::netlink, "opening a netlink socket", errno)
                          : Error{ErrorCode::netlink, std::string("opening a netlink socket: ") + nl_geterror(failed)};
    const int fd = nl_socket_get_fd(netlink.socket());
    switch_on(fd, NETLINK_GET_STRICT_CHK);
    switch_on(fd, NETLINK_EXT_ACK);
    switch_on(fd, NETLINK_CAP_ACK);
    return netlink;
}

Result<Netlink> Netlink::open_in(const Namespace &target) {
    std::optional<Netlink> opened;
    TRY(in_namespace(target, [&]() -> Result<void> {
        opened.emplace(TRY(open()));
        return {};
    }));
    return *std::move(opened);
}

Result<std::uint64_t> Netlink::netns_cookie() const { return net::netns_cookie(nl_socket_get_fd(socket())); }

bool lacks_family(const Error &error) { return error.system_errno == EAFNOSUPPORT || error.system_errno == EOPNOTSUPP; }

} // namespace podlane::net
