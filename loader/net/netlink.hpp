// SPDX-License-Identifier: MIT
// A netlink socket that stays in the namespace it was opened in, with strict checking and the kernel's own words.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"
#include "loader/net/namespace.hpp"

#include <cstdint>
#include <memory>

struct nl_sock;

namespace podlane::net {

enum class Family : std::uint8_t { ipv4 = 2, ipv6 = 10 }; // AF_INET, AF_INET6
constexpr Family family_of(bool ipv4) { return ipv4 ? Family::ipv4 : Family::ipv6; }
inline Family family_of(const ip_addr &addr) { return family_of(is_ipv4(addr)); }
// Whether the kernel was built, or booted, without the family.
[[nodiscard]] bool lacks_family(const Error &error);

// Not for use by two threads at once. The other functions of this room work in the namespace of the one they are given.
class Netlink {
  public:
    static Result<Netlink> open();           // of routes, links and addresses, in the calling thread's namespace
    static Result<Netlink> open_netfilter(); // of nf_tables, in the calling thread's namespace
    static Result<Netlink> open_ipsec();     // of IPsec (xfrm), in the calling thread's namespace
    static Result<Netlink> open_in(const Namespace &target);

    [[nodiscard]] Result<std::uint64_t> netns_cookie() const; // of its network namespace
    // Whether its namespace has this cookie. 0 is none, which every namespace may have.
    [[nodiscard]] Result<bool> is_in(std::uint64_t cookie) const {
        return cookie == 0 ? Result<bool>(true) : TRY(netns_cookie()) == cookie;
    }

    [[nodiscard]] nl_sock *socket() const { return socket_.get(); } // for loader/net only

  private:
    struct Free {
        void operator()(nl_sock *socket) const;
    };
    explicit Netlink(nl_sock *socket) : socket_(socket) {}
    static Result<Netlink> open_protocol(int protocol);

    std::unique_ptr<nl_sock, Free> socket_;
};

} // namespace podlane::net
