#include "loader/net/netlink.hpp"

#include <linux/netlink.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

#include <cerrno>

namespace podlane::net {
namespace {

// A kernel without one of these (strict checking is 4.20's) still answers, with fewer words.
void switch_on(int fd, int option) {
    const int on = 1;
    (void)setsockopt(fd, SOL_NETLINK, option, &on, sizeof on);
}

} // namespace

void Netlink::Free::operator()(nl_sock *socket) const { nl_socket_free(socket); }

Result<Netlink> Netlink::open() {
    Netlink netlink(nl_socket_alloc());
    if (!netlink.socket_)
        return system_error(ErrorCode::netlink, "opening a netlink socket", ENOMEM);
    if (const int failed = nl_connect(netlink.socket(), NETLINK_ROUTE); failed < 0)
        return Error{ErrorCode::netlink, std::string("opening a netlink socket: ") + nl_geterror(failed)};
    const int fd = nl_socket_get_fd(netlink.socket());
    switch_on(fd, NETLINK_GET_STRICT_CHK);
    switch_on(fd, NETLINK_EXT_ACK);
    switch_on(fd, NETLINK_CAP_ACK);
    return netlink;
}

Result<Netlink> Netlink::open_in(const Namespace &target) {
    const Entered inside = TRY(enter(target));
    return open();
}

} // namespace podlane::net
