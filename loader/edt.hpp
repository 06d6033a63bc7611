// SPDX-License-Identifier: MIT
// Earliest departure time (EDT): the qdisc `fq` on a host-side veth holds each packet until the time that pl_to_pod
// set. If the kernel has no `fq`, a class of `htb` holds the packets that have to wait to the rate.
#pragma once

#include "maps/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace podlane {

// "fq", "htb", or empty if the kernel has neither, or if another qdisc on the loopback interface keeps that from being
// known; loads their modules.
Result<std::string> edt_qdisc();

// Whether a root qdisc of this kind may be Podlane's.
inline bool is_edt_qdisc(std::string_view kind) { return kind == "fq" || kind == "htb"; }

// The rate that a class of `htb` holds a limit to.
std::uint64_t edt_bytes_per_s(std::uint64_t rate_bits_per_s);

// The bytes that may wait in its queue.
std::uint64_t edt_queue_bytes(std::uint64_t rate_bits_per_s, std::uint64_t burst_bits);

// Replaces the kernel's default qdisc with Podlane's, or changes Podlane's to this limit. Its kind; empty, and nothing
// changed, if the kernel has none or a foreign qdisc is there.
Result<std::string> put_edt(std::uint32_t ifindex, std::uint64_t rate_bits_per_s, std::uint64_t burst_bits);
// Removes Podlane's, and no other.
Result<void> remove_edt(std::uint32_t ifindex);

} // namespace podlane
