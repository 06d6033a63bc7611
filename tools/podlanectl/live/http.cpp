// SPDX-License-Identifier: MIT
#include "tools/podlanectl/live/http.hpp"

#include "maps/text.hpp"

#include <algorithm>
#include <string>

namespace podlane::ctl {
namespace {

// Names of fields and media types are compared without case (RFC 9110, 5.1 and 8.3.1).
bool accepts_openmetrics(std::string_view fields) {
    const std::string lower = lower_case(std::string(fields));
    return std::ranges::any_of(split(lower, "\r\n"), [](std::string_view line) {
        return line.starts_with("accept:") && line.find("application/openmetrics-text") != std::string_view::npos;
    });
}

HttpTarget target_of(std::string_view line) {
    constexpr std::string_view kGet = "GET ";
    if (!line.starts_with(kGet))
        return HttpTarget::not_get;
    line.remove_prefix(kGet.size());
    const std::string_view path = line.substr(0, line.find_first_of(" ?"));
    if (path == "/")
        return HttpTarget::index;
    return path == "/metrics" ? HttpTarget::metrics : HttpTarget::unknown;
}

} // namespace

std::optional<HttpRequest> read_http_request(std::string_view received) {
    const std::string_view head = received.substr(0, kMostRequest);
    const std::size_t end = head.find("\r\n\r\n");
    if (end == std::string_view::npos)
        return received.size() < kMostRequest ? std::nullopt : std::optional(HttpRequest{HttpTarget::too_long});
    const std::size_t line = head.find('\r');
    return HttpRequest{target_of(head.substr(0, line)), accepts_openmetrics(head.substr(line, end - line))
                                                            ? output::MetricsFormat::openmetrics
                                                            : output::MetricsFormat::prometheus};
}

} // namespace podlane::ctl
