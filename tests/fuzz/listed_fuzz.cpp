// SPDX-License-Identifier: MIT
// Feeds hostile bytes to what reads the NAT rules that iptables(8) lists: others' rules, with any comment, are among
// the network's. Of them a script is made that iptables-restore(8) runs as root.
#include "plugin/listed_rules.hpp"
#include "plugin/node_program.hpp"
#include "tests/fuzz/require.hpp"

#include "maps/text.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using namespace podlane;

constexpr const char *kNetwork = "pods";

bool has_line(std::string_view text, const std::string &line) {
    return ("\n" + std::string(text) + "\n").find("\n" + line + "\n") != std::string::npos;
}

// Whether the line of a script does nothing but to remove the chain and what leads to it, which is listed.
bool is_removal(const std::string &line, std::string_view listed, const std::string &chain) {
    if (line.starts_with("-D POSTROUTING "))
        return line.ends_with(" -j " + chain) && has_line(listed, "-A" + line.substr(2));
    return line == "-F " + chain || line == "-X " + chain;
}

void check_script(std::string_view listed, const std::string &chain) {
    constexpr std::string_view kBegin = "*nat\n", kEnd = "COMMIT\n";
    const std::string script = script_that_removes(listed, chain);
    if (script.empty())
        return;
    require(listed.find(chain) != std::string_view::npos);
    require(script.starts_with(kBegin) && script.ends_with("\n-F " + chain + "\n-X " + chain + "\n" + kEnd.data()));
    std::string_view rest = std::string_view(script).substr(kBegin.size());
    rest.remove_suffix(kEnd.size());
    for (const std::string &line : split<std::string>(rest, "\n"))
        require(is_removal(line, listed, chain));
}

// Subnets are those of whole rules.
void check_subnets(std::string_view listed, const std::string &chain) {
    for (const Prefix &subnet : subnets_that_jump(listed, chain)) {
        require(subnet.length <= address_bits(subnet.addr));
        require(has_line(listed, "-A " + jump_from(subnet, chain)));
    }
}

// Rules with their mark are taken for what was written, whatever they are, and no other ones.
void check_mark(const std::string &rules) {
    const std::string begin = "-A " + rules + " --comment \"";
    const std::string end = std::string(" ") + kNetwork + "\" -j MASQUERADE\n";
    const std::string mark = nft_mark(begin + kUnmarked + end);
    require(is_as_marked("-N PODLANE\n" + begin + mark + end, kNetwork));
    require(!is_as_marked("-N PODLANE\n-A x" + begin + mark + end, kNetwork));
    require(!is_as_marked(begin + mark + end, "another"));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    const std::string chain = iptables_chain(kNetwork);
    for (const std::string &listed :
         {input, "-N " + chain + "\n" + input, "-N " + chain + "\n-A POSTROUTING " + input + " -j " + chain + "\n"}) {
        check_script(listed, chain);
        check_subnets(listed, chain);
        (void)is_as_marked(listed, kNetwork);
    }
    check_mark(input);
    return 0;
}
