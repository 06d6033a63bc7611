// SPDX-License-Identifier: MIT
// How the files of this folder talk to the kernel: one request built attribute by attribute, one exchange, typed
// answers. Internal: it shows libnl's types, so no header outside this folder includes it.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace podlane::net {

constexpr std::uint16_t kChange = NLM_F_REQUEST | NLM_F_ACK; // also for a get of one object
constexpr std::uint16_t kDump = NLM_F_REQUEST | NLM_F_DUMP;

// A request. An attribute that does not fit is noted and refused by request_all(), so that building reads as a list.
class Message {
  public:
    template <typename Header> Message(int type, int flags, const Header &header) : message_(nlmsg_alloc()) {
        if (message_)
            nlmsg_put(message_.get(), NL_AUTO_PORT, NL_AUTO_SEQ, type, 0, flags);
        append(header);
    }

    template <typename T> Message &put(int attribute, const T &value) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
        return put_bytes(attribute, &value, sizeof value);
    }
    Message &put(int attribute, const std::string &text) { return put_bytes(attribute, text.c_str(), text.size() + 1); }
    Message &put(int attribute, const ip_addr &addr); // 4 or 16 bytes
    template <typename T> Message &put(int attribute, const std::optional<T> &value) {
        return value ? put(attribute, *value) : *this;
    }
    template <typename Inside> Message &nest(int attribute, Inside inside) {
        nlattr *start = message_ ? nla_nest_start(message_.get(), attribute) : nullptr;
        inside();
        fits_ = start && nla_nest_end(message_.get(), start) == 0 && fits_;
        return *this;
    }
    template <typename Header> Message &append(const Header &header) {
        Header copy = header;
        fits_ = message_ && nlmsg_append(message_.get(), &copy, sizeof copy, NLMSG_ALIGNTO) == 0 && fits_;
        return *this;
    }

    [[nodiscard]] bool fits() const { return fits_; }
    [[nodiscard]] nlmsghdr *header() { return nlmsg_hdr(message_.get()); }

  private:
    Message &put_bytes(int attribute, const void *data, std::size_t size);

    struct Free {
        void operator()(nl_msg *message) const { nlmsg_free(message); }
    };
    std::unique_ptr<nl_msg, Free> message_;
    bool fits_ = true;
};

// The result of one request.
struct Outcome {
    int error = 0;    // a positive errno
    std::string text; // the kernel's own words, often empty
    bool interrupted = false;
    bool answered = false; // false: it failed on the way, and the kernel may have executed it

    [[nodiscard]] bool ok() const { return error == 0; }
    [[nodiscard]] bool is(std::initializer_list<int> errors) const {
        return std::find(errors.begin(), errors.end(), error) != errors.end();
    }
    [[nodiscard]] Error as_error(std::string_view doing) const;
};

using OnMessage = std::function<void(nlmsghdr *)>;

// Sends all of `batch` in one system call and waits for the answers to the requests that want one (NLM_F_ACK or
// NLM_F_DUMP). A failed request does not stop the next one, except in a batch of nf_tables. An answer to a request that
// wants none is an error of the whole batch.
std::vector<Outcome> request_all(Netlink &netlink, std::span<Message> batch, const OnMessage &on_message = {});
Outcome request(Netlink &netlink, Message message, const OnMessage &on_message = {});

// The value of a change that may find nothing to do: one of `nothing_to_do` is false, not an error.
Result<bool> changed(const Outcome &outcome, std::initializer_list<int> nothing_to_do, std::string_view doing);

constexpr int kDumpAttempts = 16;

// Every parsed object of a dump, taken again if it was changed meanwhile; a missing link or table has none.
template <typename T, typename Make, typename Parse>
Result<std::vector<T>> dump(Netlink &netlink, Make make, Parse parse, std::string_view doing) {
    std::vector<T> found;
    Outcome outcome;
    for (int attempt = 0; attempt < kDumpAttempts; ++attempt) {
        found.clear();
        outcome = request(netlink, make(), [&](nlmsghdr *header) {
            if (std::optional<T> object = parse(header))
                found.push_back(std::move(*object));
        });
        if (!outcome.interrupted)
            break;
    }
    if (outcome.is({ENODEV, ENOENT}))
        return std::vector<T>{};
    if (!outcome.ok())
        return outcome.as_error(doing);
    return found;
}

// Attributes of a received message, by number; reading one that is missing or too short gives nothing.
template <int kMax> class Attributes {
  public:
    Attributes(nlmsghdr *header, int header_size) { nlmsg_parse(header, header_size, table_.data(), kMax, nullptr); }
    explicit Attributes(nlattr *nest) {
        if (nest)
            nla_parse_nested(table_.data(), kMax, nest, nullptr);
    }
    Attributes(nlattr *first, int size) { nla_parse(table_.data(), kMax, first, size, nullptr); }

    [[nodiscard]] nlattr *at(int attribute) const { return table_[attribute]; }
    template <typename T> [[nodiscard]] std::optional<T> get(int attribute) const {
        const nlattr *found = table_[attribute];
        if (!found || nla_len(found) < static_cast<int>(sizeof(T)))
            return std::nullopt;
        T value;
        std::memcpy(&value, nla_data(found), sizeof value);
        return value;
    }
    [[nodiscard]] std::string text(int attribute) const {
        const nlattr *found = table_[attribute];
        if (!found)
            return {};
        const char *start = static_cast<const char *>(nla_data(found));
        return {start, strnlen(start, static_cast<std::size_t>(nla_len(found)))};
    }
    [[nodiscard]] std::optional<ip_addr> addr(int attribute) const;

  private:
    std::array<nlattr *, kMax + 1> table_{};
};

template <int kMax> std::optional<ip_addr> Attributes<kMax>::addr(int attribute) const {
    const nlattr *found = table_[attribute];
    return found ? addr_from_bytes(nla_data(found), static_cast<std::size_t>(nla_len(found))) : std::nullopt;
}

constexpr std::uint32_t kLoopbackIfindex = 1; // in every namespace (kernel: LOOPBACK_IFINDEX)

inline ifinfomsg link_header(std::uint32_t ifindex) {
    ifinfomsg header{};
    header.ifi_index = static_cast<int>(ifindex);
    return header;
}

inline std::uint8_t number(Family family) { return static_cast<std::uint8_t>(family); }

} // namespace podlane::net
