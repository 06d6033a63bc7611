// SPDX-License-Identifier: MIT
#include "plugin/listed_rules.hpp"

#include "maps/result.hpp"
#include "maps/text.hpp"
#include "plugin/node_program.hpp"

#include <algorithm>

namespace podlane {

std::string jump_from(const Prefix &subnet, const std::string &chain) {
    return "POSTROUTING -s " + to_string(subnet) + " ! -d " + to_string(subnet) + " -j " + chain;
}

bool is_as_marked(std::string_view listed, const std::string &network) {
    std::string rules(listed.substr(std::min(listed.find("-A "), listed.size())));
    const std::string end = " " + network + "\" -j MASQUERADE\n";
    if (!rules.ends_with(end))
        return false;
    const std::size_t at = rules.rfind('"', rules.size() - end.size()) + 1;
    const std::string mark = rules.substr(at, rules.size() - end.size() - at);
    rules.replace(at, mark.size(), kUnmarked);
    return mark == kUnmarked || mark == nft_mark(rules); // an earlier version wrote no mark
}

std::vector<Prefix> subnets_that_jump(std::string_view rules, const std::string &chain) {
    std::vector<Prefix> subnets;
    for (const std::string_view rule : split(rules, "\n")) {
        const auto words = split(rule, " ");
        const auto subnet = words.size() > 3 ? parse_prefix(words[3]) : Error{};
        if (subnet && rule == "-A " + jump_from(*subnet, chain))
            subnets.push_back(*subnet);
    }
    return subnets;
}

std::string script_that_removes(std::string_view listed, const std::string &chain) {
    const std::string jumps = " -j " + chain;
    std::string script = "*nat\n";
    std::size_t start = 0;
    for (std::size_t end = 0; (end = listed.find('\n', start)) != std::string_view::npos; start = end + 1) {
        const std::string_view line = listed.substr(start, end - start);
        if (line.starts_with("-A POSTROUTING ") && line.ends_with(jumps))
            script += "-D" + std::string(line.substr(2)) + "\n";
    }
    if (listed.find("-N " + chain + "\n") == std::string_view::npos)
        return {};
    return script + "-F " + chain + "\n-X " + chain + "\nCOMMIT\n";
}

} // namespace podlane
