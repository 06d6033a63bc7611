// SPDX-License-Identifier: MIT
#include "loader/net/wait.hpp"

#include "loader/net/link.hpp"
#include "loader/net/message.hpp"

#include <netlink/socket.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>

namespace podlane::net {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock;

int group_of(const RouteSpec &route) {
    return is_ipv4(route.destination.addr) ? RTNLGRP_IPV4_ROUTE : RTNLGRP_IPV6_ROUTE;
}

constexpr const char *kRoutes = "routes";
constexpr const char *kLinks = "links";
constexpr std::uint8_t kUp = 6; // IF_OPER_UP of linux/if.h, which does not go with net/if.h

// Notifications have number 0 and are no answer to a request, so that the socket can be used meanwhile.
class Subscription {
  public:
    static Result<Subscription> to(Netlink &netlink, int group, const char *what) {
        const int fd = nl_socket_get_fd(netlink.socket());
        if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0)
            return system_error(ErrorCode::netlink, std::string("subscribing to changes of ") + what, errno);
        return Subscription(fd, group, what);
    }
    Subscription(Subscription &&other) noexcept
        : fd_(std::exchange(other.fd_, -1)), group_(other.group_), what_(other.what_) {}
    Subscription &operator=(Subscription &&) = delete;
    Subscription(const Subscription &) = delete;
    Subscription &operator=(const Subscription &) = delete;
    ~Subscription() {
        if (fd_ < 0)
            return;
        (void)setsockopt(fd_, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group_, sizeof group_);
        discard();
    }

    // The messages themselves do not matter: one has arrived.
    void discard() const {
        char byte = 0;
        while (recv(fd_, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) > 0) {
        }
    }
    // Until something arrives, or for a while: of a notification that the kernel had no room for nothing remains.
    [[nodiscard]] Result<void> wait(milliseconds left) const {
        constexpr milliseconds kLongest{100};
        pollfd readable{fd_, POLLIN, 0};
        if (poll(&readable, 1, static_cast<int>(std::min(left, kLongest).count())) < 0 && errno != EINTR)
            return system_error(ErrorCode::netlink, std::string("waiting for changes of ") + what_, errno);
        return {};
    }

  private:
    Subscription(int fd, int group, const char *what) : fd_(fd), group_(group), what_(what) {}
    int fd_;
    int group_;
    const char *what_;
};

using Check = std::function<Result<bool>()>;

Result<bool> wait_until(Netlink &netlink, int group, const char *what, milliseconds limit, const Check &is_there) {
    if (TRY(is_there()))
        return true;
    const Time::time_point until = Time::now() + limit;
    const Subscription changes = TRY(Subscription::to(netlink, group, what));
    for (;;) {
        changes.discard(); // before the check: what arrives after it ends the wait
        if (TRY(is_there()))
            return true;
        const auto left = std::chrono::ceil<milliseconds>(until - Time::now());
        if (left.count() <= 0)
            return false;
        TRY(changes.wait(left));
    }
}

} // namespace

Result<bool> wait_for_route(Netlink &netlink, const RouteSpec &route, milliseconds limit) {
    return wait_until(netlink, group_of(route), kRoutes, limit,
                      [&]() -> Result<bool> { return TRY(find_route(netlink, route)).has_value(); });
}

// IFF_RUNNING says as much of a link whose state is unknown yet, which a new one's is.
Result<bool> wait_for_link(Netlink &netlink, std::uint32_t ifindex, milliseconds limit) {
    return wait_until(netlink, RTNLGRP_LINK, kLinks, limit, [&]() -> Result<bool> {
        const auto link = TRY(find_link(netlink, ifindex));
        return link && link->state == kUp;
    });
}

} // namespace podlane::net
