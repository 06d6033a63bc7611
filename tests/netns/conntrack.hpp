// SPDX-License-Identifier: MIT
// The connection tracking table of a namespace: what is in it, and the two changes that kube-proxy and a user make.
#pragma once

#include "tests/harness/process.hpp"
#include "tests/harness/talk.hpp"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace podlane::test {

// One line of /proc/net/nf_conntrack. Of both directions: addresses and ports as they are before translation.
struct Tracked {
    bool ipv4 = true;
    Transport transport = Transport::tcp;
    std::uint64_t seconds = 0; // until it expires
    std::string state{};       // of TCP
    Endpoint source{};
    Endpoint destination{};
    Endpoint reply_source{};
    Endpoint reply_destination{};
    bool assured = false;
    bool replied = true;
};

inline std::optional<Tracked> parse_tracked(const std::string &line) {
    std::istringstream in(line);
    std::string family;
    std::string number;
    std::string protocol;
    std::uint64_t seconds = 0;
    in >> family >> number >> protocol >> number >> seconds;
    if (protocol != "tcp" && protocol != "udp")
        return {};
    Tracked out{
        .ipv4 = family == "ipv4", .transport = protocol == "tcp" ? Transport::tcp : Transport::udp, .seconds = seconds};
    std::map<std::string, std::vector<std::string>> fields;
    for (std::string word; in >> word;) {
        const std::size_t at = word.find('=');
        if (at != std::string::npos)
            fields[word.substr(0, at)].push_back(word.substr(at + 1));
        else if (word == "[ASSURED]")
            out.assured = true;
        else if (word == "[UNREPLIED]")
            out.replied = false;
        else
            out.state = word;
    }
    const auto end = [&](const char *address, const char *port, std::size_t direction) {
        return Endpoint{require(parse_ip(fields.at(address).at(direction))),
                        static_cast<std::uint16_t>(std::stoul(fields.at(port).at(direction)))};
    };
    out.source = end("src", "sport", 0);
    out.destination = end("dst", "dport", 0);
    out.reply_source = end("src", "sport", 1);
    out.reply_destination = end("dst", "dport", 1);
    return out;
}

// Connections of TCP and UDP.
inline std::vector<Tracked> tracked(const net::Namespace &where) {
    std::istringstream text(must_run(where, words("cat /proc/net/nf_conntrack")));
    std::vector<Tracked> all;
    for (std::string line; std::getline(text, line);)
        if (std::optional<Tracked> one = parse_tracked(line))
            all.push_back(*one);
    return all;
}

// Requests to ctnetlink, each with the tuple of a connection's first direction.
class ConntrackRequest {
  public:
    ConntrackRequest(std::uint16_t type, const Tracked &of) {
        bytes_.resize(sizeof(nlmsghdr));
        append(nfgenmsg{static_cast<std::uint8_t>(of.ipv4 ? AF_INET : AF_INET6), NFNETLINK_V0, 0});
        header().nlmsg_type = static_cast<std::uint16_t>(NFNL_SUBSYS_CTNETLINK << 8U | type);
        header().nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        nest(CTA_TUPLE_ORIG, [&] {
            nest(CTA_TUPLE_IP, [&] {
                add_address(of.ipv4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, of.source.addr, of.ipv4);
                add_address(of.ipv4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, of.destination.addr, of.ipv4);
            });
            nest(CTA_TUPLE_PROTO, [&] {
                const std::uint8_t protocol = of.transport == Transport::tcp ? IPPROTO_TCP : IPPROTO_UDP;
                attribute(CTA_PROTO_NUM, protocol);
                attribute(CTA_PROTO_SRC_PORT, htons(of.source.port));
                attribute(CTA_PROTO_DST_PORT, htons(of.destination.port));
            });
        });
    }
    void set_mark(std::uint32_t mark) { attribute(CTA_MARK, htonl(mark)); }

    // 0 or errno.
    [[nodiscard]] int send(const net::Namespace &where) {
        const auto inside = require(net::enter(where));
        const Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
        header().nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
        if (::send(socket.get(), bytes_.data(), bytes_.size(), 0) < 0)
            return errno;
        struct {
            nlmsghdr header;
            nlmsgerr error;
            std::array<char, 1024> rest;
        } answer{};
        return recv(socket.get(), &answer, sizeof answer, 0) < 0 ? errno : -answer.error.error;
    }

  private:
    nlmsghdr &header() { return *reinterpret_cast<nlmsghdr *>(bytes_.data()); }
    void append_bytes(const void *from, std::size_t size) {
        const auto *first = static_cast<const std::uint8_t *>(from);
        bytes_.insert(bytes_.end(), first, first + size);
        bytes_.resize((bytes_.size() + 3) / 4 * 4);
    }
    template <typename T> void append(const T &value) { append_bytes(&value, sizeof value); }
    template <typename T> void attribute(int type, const T &value) {
        append(nlattr{static_cast<std::uint16_t>(sizeof(nlattr) + sizeof value), static_cast<std::uint16_t>(type)});
        append(value);
    }
    void add_address(int type, const ip_addr &addr, bool ipv4) {
        if (ipv4)
            attribute(type, addr.word[3]);
        else
            attribute(type, addr);
    }
    template <typename Inside> void nest(int type, const Inside &inside) {
        const std::size_t at = bytes_.size();
        append(nlattr{0, static_cast<std::uint16_t>(type | NLA_F_NESTED)});
        inside();
        const auto size = static_cast<std::uint16_t>(bytes_.size() - at);
        std::memcpy(bytes_.data() + at, &size, sizeof size);
    }
    std::vector<std::uint8_t> bytes_;
};

inline int delete_tracked(const net::Namespace &where, const Tracked &one) {
    return ConntrackRequest(IPCTNL_MSG_CT_DELETE, one).send(where);
}

inline int mark_tracked(const net::Namespace &where, const Tracked &one, std::uint32_t mark) {
    ConntrackRequest request(IPCTNL_MSG_CT_NEW, one);
    request.set_mark(mark);
    return request.send(where);
}

} // namespace podlane::test
