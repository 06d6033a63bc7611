// SPDX-License-Identifier: MIT
// A node with directories of the runtime, into which podlanectl installs.
#pragma once

#include "tests/netns/ctl.hpp"

namespace podlane::test {

class NodeTest : public CtlTest {
  protected:
    NodeTest() {
        fs::create_directory(bin());
        fs::create_directory(conf());
    }
    [[nodiscard]] std::string bin() const { return node_.dir() + "/opt"; }
    [[nodiscard]] std::string conf() const { return node_.dir() + "/etc"; }
    [[nodiscard]] std::string conflist() const { return conf() + "/10-podlane.conflist"; }
    [[nodiscard]] Output install(const std::string &more = "--subnets 198.18.1.0/24,2001:db8:1::/64") const {
        return ctl("install --bin-dir " + bin() + " --conf-dir " + conf() + " --plugin " + std::getenv("PODLANE_BIN") +
                   " " + more);
    }
    [[nodiscard]] Output uninstall() const { return ctl("uninstall --bin-dir " + bin() + " --conf-dir " + conf()); }
    [[nodiscard]] Json gc(const std::string &more = "") const {
        return ctl_json("gc --bin-dir " + node_.plugins() + " " + more);
    }
    // Of each program of Podlane on any interface, "interface program".
    [[nodiscard]] std::vector<std::string> programs_on_node() const {
        std::vector<std::string> found;
        for (const Json &link : ip_json(node_.ns(), "link"))
            for (const Hook hook : {Hook::ingress, Hook::egress})
                for (const Attached &one : programs(link.at("ifindex"), hook))
                    found.push_back(link.at("ifname").get<std::string>() + " " + one.name);
        return found;
    }
};

} // namespace podlane::test
