// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/frame.hpp"

#include "tools/podlanectl/views/decode.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cctype>
#include <cstdio>

namespace podlane::ctl {
namespace {

constexpr std::uint16_t kIpv4 = 0x0800;
constexpr std::uint16_t kArp = 0x0806;
constexpr std::uint16_t kVlan = 0x8100;
constexpr std::uint16_t kIpv6 = 0x86dd;
constexpr std::size_t kEthernet = 14;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kEchoRequest4 = 8;
constexpr std::uint8_t kEchoRequest6 = 128;

void put16(Bytes &out, std::size_t value) {
    out.push_back(static_cast<std::uint8_t>(value >> 8U));
    out.push_back(static_cast<std::uint8_t>(value));
}

void put(Bytes &out, const ip_addr &addr) {
    const auto *first = reinterpret_cast<const std::uint8_t *>(addr.word);
    out.insert(out.end(), first + (is_ipv4(addr) ? 12 : 0), first + 16);
}

// RFC 1071.
std::uint16_t checksum(std::span<const std::uint8_t> of) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i)
        sum += i % 2 == 0 ? std::uint32_t{of[i]} << 8U : of[i];
    while (sum >> 16U != 0)
        sum = (sum & 0xffffU) + (sum >> 16U);
    return static_cast<std::uint16_t>(~sum);
}

void set16(Bytes &bytes, std::size_t at, std::uint16_t value) {
    bytes.at(at) = static_cast<std::uint8_t>(value >> 8U);
    bytes.at(at + 1) = static_cast<std::uint8_t>(value);
}

// The transport header without its checksum, and the checksum's offset.
Bytes transport_of(const Question &q, std::size_t &checksum_at) {
    Bytes out;
    if (q.protocol == IPPROTO_TCP) {
        put16(out, q.source_port);
        put16(out, q.destination_port);
        const bool acknowledges = (q.tcp_flags & TH_ACK) != 0;
        out.insert(out.end(), {0, 0, 0, 1, 0, 0, 0, static_cast<std::uint8_t>(acknowledges)});
        out.insert(out.end(), {0x50, q.tcp_flags, 0xff, 0xff, 0, 0, 0, 0});
        checksum_at = 16;
    } else if (q.protocol == IPPROTO_UDP) {
        put16(out, q.source_port);
        put16(out, q.destination_port);
        out.insert(out.end(), 4, 0);
        checksum_at = 6;
    } else {
        out = {q.protocol == IPPROTO_ICMP ? kEchoRequest4 : kEchoRequest6, 0, 0, 0};
        put16(out, q.source_port);
        put16(out, 1);
        checksum_at = 2;
    }
    return out;
}

Bytes header_of(const Question &q, std::size_t payload) {
    Bytes out;
    if (is_ipv4(q.source)) {
        out = {0x45, 0};
        put16(out, 20 + payload);
        out.insert(out.end(), {0, 0, 0x40, 0, kHopLimit, q.protocol, 0, 0});
        put(out, q.source);
        put(out, q.destination);
        set16(out, 10, checksum(out));
        return out;
    }
    out = {0x60, 0, 0, 0};
    put16(out, payload);
    out.insert(out.end(), {q.protocol, kHopLimit});
    put(out, q.source);
    put(out, q.destination);
    return out;
}

Bytes pseudo_header(const Question &q, const Bytes &transport) {
    Bytes out;
    if (q.protocol == IPPROTO_ICMP)
        return out;
    put(out, q.source);
    put(out, q.destination);
    put16(out, q.protocol);
    put16(out, transport.size());
    return out;
}

// -1 if it is not a hexadecimal digit.
int digit(char c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t at = kDigits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

} // namespace

Result<Bytes> build_frame(const Question &question) {
    constexpr std::size_t kMost = 65000;
    const std::size_t header = is_ipv4(question.source) ? 20 : 40;
    std::size_t checksum_at = 0;
    Bytes transport = transport_of(question, checksum_at);
    const std::size_t wanted = question.ip_bytes == 0 ? header + transport.size() : question.ip_bytes;
    if (wanted < header + transport.size() || wanted > kMost)
        return Error{ErrorCode::invalid_environment, "a packet of this kind has " +
                                                         std::to_string(header + transport.size()) + " to " +
                                                         std::to_string(kMost) + " bytes"};
    transport.resize(wanted - header);
    if (question.protocol == IPPROTO_UDP)
        set16(transport, 4, static_cast<std::uint16_t>(transport.size()));
    Bytes summed = pseudo_header(question, transport);
    summed.insert(summed.end(), transport.begin(), transport.end());
    set16(transport, checksum_at, checksum(summed));
    Bytes frame(question.to_mac.begin(), question.to_mac.end());
    frame.insert(frame.end(), question.from_mac.begin(), question.from_mac.end());
    put16(frame, is_ipv4(question.source) ? kIpv4 : kIpv6);
    const Bytes ip = header_of(question, transport.size());
    frame.insert(frame.end(), ip.begin(), ip.end());
    frame.insert(frame.end(), transport.begin(), transport.end());
    return frame;
}

Result<Bytes> frame_from_hex(std::string_view hex) {
    Bytes frame;
    int high = -1;
    for (const char c : hex) {
        if (c == ':' || std::isspace(static_cast<unsigned char>(c)) != 0)
            continue;
        const int value = digit(c);
        if (value < 0)
            return Error{ErrorCode::invalid_environment, "write a frame in hexadecimal digits"};
        if (high >= 0)
            frame.push_back(static_cast<std::uint8_t>(high * 16 + value));
        high = high >= 0 ? -1 : value;
    }
    if (high >= 0 || frame.size() < kEthernet)
        return Error{ErrorCode::invalid_environment, "a frame has at least 14 bytes, two digits each"};
    return frame;
}

FrameFacts read_frame(std::span<const std::uint8_t> frame) {
    const auto word = [&](std::size_t at) { return static_cast<std::uint16_t>(frame[at] << 8U | frame[at + 1]); };
    FrameFacts facts;
    std::size_t at = kEthernet;
    if (frame.size() < at)
        return facts;
    facts.ethertype = word(at - 2);
    if (facts.ethertype == kVlan && frame.size() >= at + 4) {
        facts.ethertype = word(at + 2);
        at += 4;
    }
    const auto read_addr = [&](std::size_t from, std::size_t size) { return *addr_from_bytes(&frame[from], size); };
    bool first_fragment = true;
    if (facts.ethertype == kIpv4 && frame.size() >= at + 20) {
        facts.source = read_addr(at + 12, 4);
        facts.destination = read_addr(at + 16, 4);
        facts.protocol = frame[at + 9];
        first_fragment = (word(at + 6) & 0x1fffU) == 0;
        at += (frame[at] & 15U) * std::size_t{4};
    } else if (facts.ethertype == kIpv6 && frame.size() >= at + 40) {
        facts.source = read_addr(at + 8, 16);
        facts.destination = read_addr(at + 24, 16);
        facts.protocol = frame[at + 6];
        at += 40;
    } else {
        return facts;
    }
    facts.is_ip = true;
    const bool has_ports =
        facts.protocol == IPPROTO_TCP || facts.protocol == IPPROTO_UDP || facts.protocol == IPPROTO_SCTP;
    if (has_ports && first_fragment && frame.size() >= at + 4) {
        facts.source_port = htons(word(at));
        facts.destination_port = htons(word(at + 2));
    }
    return facts;
}

std::string frame_words(const FrameFacts &facts) {
    if (facts.is_ip)
        return protocol_name(facts.protocol) + " " + socket_words(facts.source, facts.source_port) + " > " +
               socket_words(facts.destination, facts.destination_port);
    if (facts.ethertype == kArp)
        return "arp";
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "ethertype 0x%04x", facts.ethertype);
    return text.data();
}

} // namespace podlane::ctl
