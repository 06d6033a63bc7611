// SPDX-License-Identifier: MIT
// FRR on every node of a cluster, with the documented example as node 1 has it, and the addresses of the others put in.
#pragma once

#include "tests/harness/cluster.hpp"

#include <array>
#include <string>
#include <vector>

namespace podlane::test {

class Frrs {
  public:
    static bool installed();

    explicit Frrs(const Cluster &cluster);
    Frrs(const Frrs &) = delete;
    Frrs &operator=(const Frrs &) = delete;

    // What `vtysh` says.
    [[nodiscard]] std::string ask(int node, const std::string &command) const;
    // Waits until every node has so many ways to each other one.
    [[nodiscard]] bool settle(std::size_t ways) const;

  private:
    void start(int node);
    [[nodiscard]] std::string vtysh(int node, const std::vector<std::string> &arguments) const;

    const Cluster &cluster_;
    std::array<std::vector<Daemon>, Cluster::kNodes> daemons_;
};

} // namespace podlane::test
