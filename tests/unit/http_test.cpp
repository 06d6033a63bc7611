// SPDX-License-Identifier: MIT
// Requests to the server behind "metrics --listen", however they arrive.
#include "tools/podlanectl/live/http.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl {
namespace {

constexpr auto kPlain = output::MetricsFormat::prometheus;
constexpr auto kOpen = output::MetricsFormat::openmetrics;
const std::string kEnd = "\r\n\r\n";

HttpTarget target(const std::string &request) {
    const auto read = read_http_request(request);
    EXPECT_TRUE(read) << request;
    return read ? read->target : HttpTarget::unknown;
}
output::MetricsFormat format(const std::string &fields, const std::string &path = "/metrics") {
    const auto read = read_http_request("GET " + path + " HTTP/1.1\r\n" + fields + kEnd);
    EXPECT_TRUE(read && read->target == HttpTarget::metrics) << fields;
    return read ? read->format : kPlain;
}

TEST(Http, TheTargetIsThePathOfAGet) {
    EXPECT_EQ(target("GET /metrics HTTP/1.1" + kEnd), HttpTarget::metrics);
    EXPECT_EQ(target("GET /metrics?name=value HTTP/1.1" + kEnd), HttpTarget::metrics);
    EXPECT_EQ(target("GET /metrics" + kEnd), HttpTarget::metrics);
    EXPECT_EQ(target("GET / HTTP/1.1" + kEnd), HttpTarget::index);
    for (const std::string path : {"", "/metric", "/metrics/", "//metrics", "/METRICS", "/../metrics"})
        EXPECT_EQ(target("GET " + path + " HTTP/1.1" + kEnd), HttpTarget::unknown) << path;
    EXPECT_EQ(target("GET /metrics" + std::string(1, '\0') + " HTTP/1.1" + kEnd), HttpTarget::unknown);
    for (const std::string line : {"HEAD /metrics", "POST /metrics", "get /metrics", "GET", "GET\t/metrics", "", "\n"})
        EXPECT_EQ(target(line + kEnd), HttpTarget::not_get) << line;
    EXPECT_EQ(target("GET\r\nX: GET /metrics" + kEnd), HttpTarget::not_get);
}

TEST(Http, TheFormatIsTheOneThatIsAccepted) {
    EXPECT_EQ(format("Host: node"), kPlain);
    EXPECT_EQ(format("Accept: text/plain"), kPlain);
    EXPECT_EQ(format("Accept: application/openmetrics-text"), kOpen);
    EXPECT_EQ(format("Host: node\r\naccept:text/plain;q=0.5,Application/OpenMetrics-Text; version=1.0.0"), kOpen);
    EXPECT_EQ(format("Accept: text/plain\r\nAccept: application/openmetrics-text\r\nHost: node"), kOpen);
}

// A link that leads here chooses the path, and other fields are about other things.
TEST(Http, NothingButAcceptChoosesTheFormat) {
    EXPECT_EQ(format("Host: node", "/metrics?application/openmetrics-text"), kPlain);
    EXPECT_EQ(format("Host: node", "/metrics?\naccept:application/openmetrics-text"), kPlain);
    EXPECT_EQ(format("Referer: http://node/?application/openmetrics-text"), kPlain);
    EXPECT_EQ(format("X-Accept: application/openmetrics-text"), kPlain);
    EXPECT_EQ(format("Host: node" + kEnd + "Accept: application/openmetrics-text"), kPlain) << "of the next request";
}

TEST(Http, ARequestIsReadOnceItsEmptyLineIsThere) {
    const std::string whole = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text" + kEnd;
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_FALSE(read_http_request(whole.substr(0, size))) << size;
    for (const std::string behind : {"", "\r", "body", "GET / HTTP/1.1\r\n\r\n"})
        EXPECT_EQ(target(whole + behind), HttpTarget::metrics);
    EXPECT_EQ(target(whole + std::string(2 * kMostRequest, 'x')), HttpTarget::metrics);
    EXPECT_FALSE(read_http_request("GET /metrics HTTP/1.1\n\n")) << "lines end with CR and LF";
}

TEST(Http, ARequestWithoutAnEndIsTooLong) {
    const std::string begin = "GET /metrics HTTP/1.1\r\nX: ";
    const auto of_size = [&](std::size_t size) { return begin + std::string(size - begin.size(), 'x'); };
    EXPECT_FALSE(read_http_request(of_size(kMostRequest - 1)));
    EXPECT_EQ(target(of_size(kMostRequest)), HttpTarget::too_long);
    EXPECT_EQ(target(of_size(kMostRequest - kEnd.size()) + kEnd), HttpTarget::metrics);
    // As if the bytes had come one by one.
    EXPECT_EQ(target(of_size(kMostRequest - kEnd.size() + 1) + kEnd), HttpTarget::too_long);
    EXPECT_EQ(target(std::string(kMostRequest, '\n')), HttpTarget::too_long);
}

} // namespace
} // namespace podlane::ctl
