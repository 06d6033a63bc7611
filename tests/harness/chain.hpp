// SPDX-License-Identifier: MIT
// A list of plugins run as libcni runs it: ADD in order with prevResult handed on, CHECK in order, DEL backwards.
#pragma once

#include "tests/harness/node.hpp"

namespace podlane::test {

class Chain {
  public:
    // `plugins`: configurations without cniVersion and name, which all get.
    Chain(const Node &node, std::vector<Json> plugins, std::string version = "1.0.0", std::string name = "pods")
        : node_(node), plugins_(std::move(plugins)), version_(std::move(version)), name_(std::move(name)) {}

    // Handed to each plugin that declares the capability.
    Json capability_args = Json::object();
    // CNI_IFNAME, CNI_ARGS and the like, on top of the attachment's.
    Variables variables{};

    // Ends at the first failure, and does not clean up: that is DEL's. The result is kept for CHECK and DEL.
    Reply add(const Container &container);
    // Without the plugin of type `except`, if there is one.
    [[nodiscard]] Reply check(const Container &container, const std::string &except = {}) const;
    // All plugins are asked; the first failure is returned. With `forgotten` there is no prevResult.
    [[nodiscard]] Reply del(const Container &container, bool forgotten = false) const;
    [[nodiscard]] const Json &result() const { return result_; }
    // The configuration the plugin at `index` gets.
    [[nodiscard]] Json config(std::size_t index, const Json &previous) const;

  private:
    [[nodiscard]] Reply call(const std::string &command, std::size_t index, const Json &previous,
                             const Container &container) const;

    const Node &node_;
    std::vector<Json> plugins_;
    std::string version_;
    std::string name_;
    Json result_;
};

} // namespace podlane::test
