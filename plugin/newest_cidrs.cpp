// SPDX-License-Identifier: MIT
#include "plugin/newest_cidrs.hpp"

#include "loader/state_file.hpp"
#include "maps/file.hpp"
#include "maps/text.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <cerrno>

namespace podlane {
namespace {

std::string cidrs_file(const std::string &network) { return ".cidrs-" + network; } // no record's: those have a colon

std::string directory_of(const cni::Config &config) { return records_of(config).directory(); }

// A link, a socket or a file that others can have written is none to go by.
Result<std::optional<std::string>> read_text(const std::string &path) {
    auto text = read_own_state_file(path);
    const int failed = text ? 0 : text.error().system_errno;
    if (!text && (failed == 0 || failed == ELOOP || failed == ENOTDIR || failed == ENXIO))
        return std::optional<std::string>{};
    if (!text)
        text.error().hint = "try again, or remove that file: then the clusterCIDRs of the newest living pod count";
    return text;
}

std::string text_of(const std::vector<Prefix> &cidrs) {
    std::string text;
    for (const Prefix &one : cidrs)
        text += to_string(one) + "\n";
    return text + "end\n"; // after a power cut, a part may be all there is
}

} // namespace

Result<std::optional<std::vector<Prefix>>> newest_cidrs(const cni::Config &config) {
    const auto text = TRY(read_text(directory_of(config) + "/" + cidrs_file(config.name)));
    std::optional<std::vector<Prefix>> cidrs;
    if (!text || !text->ends_with("end\n"))
        return cidrs;
    cidrs.emplace();
    for (const std::string_view line : split(*text, "\n"))
        if (const auto prefix = parse_prefix(std::string(line)))
            cidrs->push_back(*prefix);
    if (text_of(*cidrs) != *text)
        cidrs.reset();
    return cidrs;
}

void note_newest_cidrs(const cni::Config &config, const std::vector<Prefix> &cidrs) {
    if (const auto kept = newest_cidrs(config); kept && *kept == cidrs)
        return;
    const auto written = replace_file(directory_of(config), cidrs_file(config.name), text_of(cidrs));
    if (written)
        return;
    log(cni::Log::Level::warning,
        "clusterCIDRs of network " + config.name + " are not kept: " + written.error().message);
    forget_newest_cidrs(config, config.name);
}

void forget_newest_cidrs(const cni::Config &config, const std::string &network) {
    const std::string path = directory_of(config) + "/" + cidrs_file(network);
    if (auto removed = remove_if_present(path); !removed)
        log(cni::Log::Level::warning, removed.error().message);
}

} // namespace podlane
