// SPDX-License-Identifier: MIT
// The options of a measuring program: "--name VALUE" for each, and --help.
#pragma once

#include "tests/bench/ends.hpp"

#include <getopt.h>

#include <functional>
#include <optional>
#include <vector>

namespace podlane::bench {

// `take` is false for a value that will not do; an option without one takes no value.
struct Option {
    const char *name;
    std::function<bool(const char *)> take;
    bool *flag = nullptr;
};

// Takers of values: a text, or a number within bounds.
inline auto into(std::string &text) {
    return [&text](const char *value) { return text = value, true; };
}
template <typename Number> auto into(Number &number, double least = -1e18, double most = 1e18) {
    return [&number, least, most](const char *value) {
        const double read = std::strtod(value, nullptr);
        number = static_cast<Number>(read);
        return read >= least && read <= most;
    };
}
inline std::vector<Option> options_of(Ends &ends) {
    return {{"server-netns", into(ends.server_netns)},
            {"client-netns", into(ends.client_netns)},
            {"address", [&](const char *value) { return read_address(value, ends); }}};
}

// The exit code if the program is to end now: 0 after --help, 2 after what cannot be read. optind is as getopt leaves
// it.
inline std::optional<int> read_options(int argc, char **argv, const char *help, const std::vector<Option> &options) {
    std::vector<option> all;
    for (const Option &one : options)
        all.push_back({one.name, one.flag == nullptr ? required_argument : no_argument, nullptr, 0});
    all.push_back({"help", no_argument, nullptr, 'h'});
    all.push_back({});
    for (int found, index = 0; (found = getopt_long(argc, argv, "+", all.data(), &index)) != -1;) {
        if (found == 'h')
            return std::fputs(help, stdout) < 0 ? 1 : 0;
        if (found == '?')
            return 2;
        const Option &one = options[static_cast<std::size_t>(index)];
        if (one.flag != nullptr) {
            *one.flag = true;
        } else if (!one.take(optarg)) {
            std::fprintf(stderr, "%s: --%s: '%s' will not do\n", program_invocation_short_name, one.name, optarg);
            return 2;
        }
    }
    return {};
}

} // namespace podlane::bench
