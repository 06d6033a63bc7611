// SPDX-License-Identifier: MIT
#include "ip.hpp"

#include "text.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

bool operator==(const ip_addr &a, const ip_addr &b) { return std::memcmp(&a, &b, sizeof a) == 0; }

namespace podlane {
namespace {

constexpr std::uint32_t kMappedWord = 0x0000ffff;
constexpr unsigned kMappedBits = 96;

Error bad_text(std::string_view what, std::string_view text) {
    std::string message = "\"";
    message.append(text).append("\" is not ").append(what);
    return {ErrorCode::invalid_network_config, std::move(message)};
}

// An IPv4 address in the form of IPv6. Readers disagree on its family: ::ffff:0:0/0 is all of one or of the other.
Error mapped_text(std::string_view text, const ip_addr &addr) {
    Error error = bad_text("an IP address", text);
    error.hint = "write the IPv4 address, " + to_string(addr) + ": IPv4 and IPv6 are never mixed";
    return error;
}

} // namespace

bool is_ipv4(const ip_addr &addr) {
    return addr.word[0] == 0 && addr.word[1] == 0 && addr.word[2] == htonl(kMappedWord);
}

std::uint8_t address_bits(const ip_addr &addr) { return is_ipv4(addr) ? 32 : 128; }

bool is_none(const ip_addr &addr) { return addr == ip_addr{}; }

bool is_link_local(const ip_addr &addr) {
    if (is_ipv4(addr))
        return (ntohl(addr.word[3]) >> 16U) == 0xa9fe;
    return (ntohl(addr.word[0]) >> 22U) == 0xfe80U >> 6U;
}

ip_addr ipv4_from_host_order(std::uint32_t addr) { return {{0, 0, htonl(kMappedWord), htonl(addr)}}; }

ip_addr any_addr(bool ipv4) { return ipv4 ? ipv4_from_host_order(0) : ip_addr{}; }

std::optional<ip_addr> addr_from_bytes(const void *data, std::size_t size) {
    if (size == sizeof(in_addr)) {
        in_addr v4{};
        std::memcpy(&v4, data, sizeof v4);
        return ipv4_from_host_order(ntohl(v4.s_addr));
    }
    if (size != sizeof(ip_addr))
        return std::nullopt;
    ip_addr v6{};
    std::memcpy(&v6, data, sizeof v6);
    return v6;
}

ip_addr link_local_from_mac(const Mac &mac) {
    std::array<std::uint8_t, 16> bytes{0xfe, 0x80};
    bytes[8] = mac[0] ^ 0x02U;
    bytes[9] = mac[1];
    bytes[10] = mac[2];
    bytes[11] = 0xff;
    bytes[12] = 0xfe;
    bytes[13] = mac[3];
    bytes[14] = mac[4];
    bytes[15] = mac[5];
    ip_addr addr{};
    std::memcpy(&addr, bytes.data(), sizeof addr);
    return addr;
}

Result<ip_addr> parse_ip(std::string_view text) {
    const std::string terminated(text);
    in_addr v4{};
    if (terminated.size() == text.size() && terminated.find('\0') == std::string::npos) {
        if (inet_pton(AF_INET, terminated.c_str(), &v4) == 1)
            return ipv4_from_host_order(ntohl(v4.s_addr));
        ip_addr v6{};
        if (inet_pton(AF_INET6, terminated.c_str(), &v6) == 1)
            return is_ipv4(v6) ? mapped_text(text, v6) : Result<ip_addr>(v6);
    }
    return bad_text("an IP address", text);
}

std::string to_string(const ip_addr &addr) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (is_ipv4(addr))
        inet_ntop(AF_INET, &addr.word[3], text.data(), text.size());
    else
        inet_ntop(AF_INET6, &addr, text.data(), text.size());
    return text.data();
}

Result<Prefix> parse_prefix(std::string_view text) {
    const auto slash = text.find('/');
    auto addr = parse_ip(text.substr(0, slash));
    if (!addr) {
        Error error = bad_text("an address prefix", text);
        error.hint = std::move(addr).error().hint;
        return error;
    }
    const unsigned longest = address_bits(*addr);
    if (slash == std::string_view::npos)
        return Prefix{*addr, static_cast<std::uint8_t>(longest)};
    const auto length = parse_number<unsigned>(text.substr(slash + 1));
    if (!length || *length > longest)
        return bad_text("an address prefix", text);
    return Prefix{*addr, static_cast<std::uint8_t>(*length)};
}

std::string to_string(const Prefix &prefix) { return to_string(prefix.addr) + "/" + std::to_string(prefix.length); }

Prefix host_prefix(const ip_addr &addr) { return {addr, address_bits(addr)}; }

bool is_host_prefix(const Prefix &prefix) { return prefix.length == address_bits(prefix.addr); }

std::uint8_t mapped_length(const Prefix &prefix) {
    return static_cast<std::uint8_t>(prefix.length + (is_ipv4(prefix.addr) ? kMappedBits : 0));
}

Prefix masked(const Prefix &prefix) {
    std::array<std::uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), &prefix.addr, bytes.size());
    const unsigned bits = mapped_length(prefix);
    for (unsigned i = 0; i < bytes.size(); ++i) {
        const unsigned kept = std::clamp<int>(static_cast<int>(bits) - static_cast<int>(i * 8), 0, 8);
        bytes[i] &= static_cast<std::uint8_t>(0xff00U >> kept);
    }
    Prefix result{{}, prefix.length};
    std::memcpy(&result.addr, bytes.data(), bytes.size());
    return result;
}

bool contains(const Prefix &prefix, const ip_addr &addr) {
    return is_ipv4(prefix.addr) == is_ipv4(addr) && masked({addr, prefix.length}).addr == masked(prefix).addr;
}

bool contains(const Prefix &wide, const Prefix &narrow) {
    return wide.length <= narrow.length && contains(wide, narrow.addr);
}

Result<Mac> parse_mac(std::string_view text) {
    Mac mac{};
    constexpr std::size_t kTextSize = 17;
    if (text.size() != kTextSize)
        return bad_text("a MAC address", text);
    for (unsigned i = 0; i < mac.size(); ++i) {
        const char *start = text.data() + std::size_t{3} * i;
        const auto [end, failed] = std::from_chars(start, start + 2, mac[i], 16);
        if (failed != std::errc{} || end != start + 2 || (i + 1 < mac.size() && *end != ':'))
            return bad_text("a MAC address", text);
    }
    return mac;
}

std::string to_string(const Mac &mac) {
    std::array<char, 18> text{};
    std::snprintf(text.data(), text.size(), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
                  mac[5]);
    return text.data();
}

} // namespace podlane
