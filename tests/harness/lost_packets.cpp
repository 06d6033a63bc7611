// SPDX-License-Identifier: MIT
#include "tests/harness/lost_packets.hpp"

#include "tests/harness/process.hpp"

namespace podlane::test {

std::string lost_packets(const std::string &name, const net::Namespace &where) {
    std::string text;
    const auto add = [&](const std::vector<std::string> &argv) {
        text += "--- " + name + ":";
        for (const std::string &word : argv)
            text += " " + word;
        text += "\n" + run(where, argv).out;
    };
    add({"nstat", "-as"}); // without its history
    add({"grep", "-rE", R"((PktTooBigs|DestUnreachs|TimeExcds|NoRoutes|Discards|Errors)\s+[1-9])",
         "/proc/net/dev_snmp6"});
    for (const char *command : {"ip -6 route show cache", "ip route show cache", "ip neigh show", "ss -tien"})
        add(words(command));
    return text;
}

} // namespace podlane::test
