// SPDX-License-Identifier: MIT
// Feeds hostile bytes to the reader of requests behind `podlanectl metrics --listen`, whole, piece by piece, and as the
// end of a request that is about to be too long.
#include "tools/podlanectl/live/http.hpp"

#include "tests/fuzz/require.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

using namespace podlane;

bool is_same(const ctl::HttpRequest &one, const ctl::HttpRequest &other) {
    return one.target == other.target && one.format == other.format;
}

// The answer is that to some first bytes, and further ones do not change it.
void check_pieces(std::string_view input, std::size_t step) {
    const auto whole = ctl::read_http_request(input);
    for (std::size_t size = 0; size < input.size(); size += step)
        if (const auto part = ctl::read_http_request(input.substr(0, size)))
            require(whole && is_same(*part, *whole));
}

void check(std::string_view input) {
    const auto request = ctl::read_http_request(input);
    const std::size_t end = input.find("\r\n\r\n");
    const bool has_end = end != std::string_view::npos && end + 4 <= ctl::kMostRequest;
    require(request.has_value() == (has_end || input.size() >= ctl::kMostRequest));
    if (!request)
        return;
    using Target = ctl::HttpTarget;
    require((request->target == Target::too_long) == !has_end);
    if (!has_end)
        return;
    const std::string_view head = input.substr(0, end);
    require((request->target == Target::not_get) == !head.starts_with("GET "));
    if (request->target == Target::metrics)
        require(head.starts_with("GET /metrics") &&
                (head.size() == 12 || std::string_view(" ?\r").find(head[12]) != std::string_view::npos));
    if (request->format == output::MetricsFormat::openmetrics)
        require(head.find(':', head.find('\r')) != std::string_view::npos); // a field said so
    // The end of the request is that of its head: nothing of the next one counts.
    const auto alone = ctl::read_http_request(input.substr(0, end + 4));
    require(alone && is_same(*alone, *request));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    check(input);
    check_pieces(input, 1 + size / 64);
    const std::string begin = "GET /metrics HTTP/1.1\r\nX: ";
    const std::size_t left = std::min<std::size_t>(size, 24);
    const std::string late = begin + std::string(ctl::kMostRequest - begin.size() - left, 'x') + input;
    check(late);
    check_pieces(late, 509);
    return 0;
}
