// SPDX-License-Identifier: MIT
#include "tools/podlanectl/live/packet_filter.hpp"

#include <pcap/pcap.h>

// libpcap can capture from D-Bus, and Debian's static library would need a static libdbus
// for that. Podlane captures from no device: these take the place of that part.
extern "C" {
pcap_t *dbus_create(const char *, char *, int *) { return nullptr; }
int dbus_findalldevs(void *, char *) { return 0; }
}

namespace podlane::ctl {

struct PacketFilter::Program {
    bpf_program code{};
    Program() = default;
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;
    Program(Program &&) = delete;
    Program &operator=(Program &&) = delete;
    ~Program() { pcap_freecode(&code); }
};

Result<PacketFilter> PacketFilter::compile(const std::string &expression) {
    constexpr int kSnapLength = 65535;
    const std::unique_ptr<pcap_t, void (*)(pcap_t *)> none(pcap_open_dead(DLT_EN10MB, kSnapLength), &pcap_close);
    const auto program = std::make_shared<Program>();
    if (!none || pcap_compile(none.get(), &program->code, expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0)
        return Error{ErrorCode::invalid_environment,
                     "filter \"" + expression + "\": " + (none ? pcap_geterr(none.get()) : "no memory"),
                     "as in \"host 192.0.2.1 and tcp port 80\"; see pcap-filter(7)"};
    return PacketFilter(program);
}

bool PacketFilter::matches(std::span<const std::uint8_t> frame, std::size_t size) const {
    return bpf_filter(program_->code.bf_insns, frame.data(), static_cast<u_int>(size),
                      static_cast<u_int>(frame.size())) != 0;
}

} // namespace podlane::ctl
