// One request about a qdisc and the kernel's answer, and the question who has the place of clsact.
#pragma once

#include "maps/result.hpp"

#include <linux/netlink.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace podlane {

class QdiscRequest {
  public:
    // `type`: RTM_NEWQDISC and its like; `parent`: TC_H_ROOT or TC_H_INGRESS; `handle`: 0 is any.
    QdiscRequest(std::uint16_t type, std::uint16_t flags, std::uint32_t ifindex, std::uint32_t parent,
                 std::uint32_t handle);
    void add(std::uint16_t type, const void *value, std::size_t size);
    void add_number(std::uint16_t type, std::uint32_t value) { add(type, &value, sizeof value); }
    // What is added until the end is within it.
    std::size_t begin(std::uint16_t type);
    void end(std::size_t at);
    // The kernel's answer: 0 or an errno. With `kind`, what it says of the qdisc asked for.
    [[nodiscard]] Result<int> ask(std::string *kind = nullptr);

  private:
    nlmsghdr &header() { return *reinterpret_cast<nlmsghdr *>(bytes_.data()); }
    alignas(nlmsghdr) std::array<char, 256> bytes_{};
};

// It takes the place of clsact, and what comes in alone.
constexpr const char *kIngressQdisc = "ingress";

// Kind of the qdisc where an interface's packets come in: "clsact", kIngressQdisc, or empty where there is none.
Result<std::string> ingress_qdisc(std::uint32_t ifindex);

} // namespace podlane
