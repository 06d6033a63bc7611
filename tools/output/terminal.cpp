// SPDX-License-Identifier: MIT
#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace podlane::output {
namespace {

std::string_view environment(const char *name) {
    const char *value = std::getenv(name);
    return value == nullptr ? std::string_view{} : value;
}

std::size_t width_of(int fd) {
    if (const std::size_t columns = std::strtoul(std::string(environment("COLUMNS")).c_str(), nullptr, 10);
        columns != 0)
        return columns;
    winsize size{};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

const char *code(Tone tone) {
    switch (tone) {
    case Tone::plain:
        return "";
    case Tone::strong:
        return "\033[1m";
    case Tone::faint:
        return "\033[2m";
    case Tone::good:
        return "\033[32m";
    case Tone::warning:
        return "\033[33m";
    case Tone::bad:
        return "\033[31m";
    }
    return "";
}

} // namespace

Style style_of(int fd) {
    if (isatty(fd) == 0)
        return {};
    return {environment("NO_COLOR").empty() && environment("TERM") != "dumb", width_of(fd), {}};
}

std::string toned(std::string_view text, Tone tone, const Style &style) {
    if (!style.colour || tone == Tone::plain || text.empty())
        return std::string(text);
    return std::string(code(tone)) + std::string(text) + "\033[0m";
}

} // namespace podlane::output
