// SPDX-License-Identifier: MIT
// Requests of the HTTP server behind "metrics --listen": bytes that clients send. No sockets.
#pragma once

#include "tools/output/exposition.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace podlane::ctl {

enum class HttpTarget {
    metrics,
    index,   // "/"
    unknown, // another path
    not_get, // another method, or no HTTP at all
    too_long
};

struct HttpRequest {
    HttpTarget target = HttpTarget::unknown;
    output::MetricsFormat format = output::MetricsFormat::prometheus; // of `metrics`
};

constexpr std::size_t kMostRequest = 8192; // bytes of a request, without its body

// The request that begins with the bytes `received` so far: nothing until its empty line has arrived (RFC 9112, 2.1),
// or kMostRequest bytes without one, which is too long. Any bytes may be given; what follows the empty line, and how
// the bytes were cut into segments, changes nothing. The format is OpenMetrics if an Accept field names its media type,
// whatever its weight.
std::optional<HttpRequest> read_http_request(std::string_view received);

} // namespace podlane::ctl
