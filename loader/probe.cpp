#include "loader/probe.hpp"

#include <bpf/bpf.h>

#include <cstdint>

namespace podlane {

bool has_tcx() {
    // A kernel without tcx does not know the attach type; one that has it finds no program on the loopback device.
    static const bool known = [] {
        constexpr int kLoopback = 1;
        constexpr int kTcxIngress = 46;
        std::uint32_t count = 0;
        return bpf_prog_query(kLoopback, static_cast<bpf_attach_type>(kTcxIngress), 0, nullptr, nullptr, &count) == 0;
    }();
    return known;
}

} // namespace podlane
