// SPDX-License-Identifier: MIT
// Packets selected by a tcpdump expression: pcap-filter(7).
#pragma once

#include "maps/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace podlane::ctl {

class PacketFilter {
  public:
    // A wrong expression is a usage error with libpcap's message.
    static Result<PacketFilter> compile(const std::string &expression);
    // `frame`: the captured beginning of an Ethernet frame of `size` bytes.
    [[nodiscard]] bool matches(std::span<const std::uint8_t> frame, std::size_t size) const;

  private:
    struct Program; // libpcap's headers and the kernel's define the same names
    explicit PacketFilter(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
    std::shared_ptr<const Program> program_;
};

} // namespace podlane::ctl
