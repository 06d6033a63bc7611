// SPDX-License-Identifier: MIT
// The small HTTP server behind "metrics --listen".
#pragma once

#include "maps/result.hpp"
#include "tools/output/exposition.hpp"
#include "tools/podlanectl/cli/world.hpp"
#include "tools/podlanectl/live/admin_queries.hpp"

#include <functional>
#include <string>

namespace podlane::ctl {

using MakeMetrics = std::function<Result<std::string>(const AdminQueries &queries, output::MetricsFormat format)>;

// Serves GET /metrics on "ADDR:PORT" ("127.0.0.1:9632", "[::1]:9632") until SIGINT or SIGTERM; returns the exit
// code. Clients are served at the same time, and disconnected after two seconds, or as the oldest of 64. The calling
// process keeps CAP_BPF only; what needs CAP_NET_ADMIN is done by a process of its own.
Result<int> serve_metrics(const std::string &listen_on, const World &world, const MakeMetrics &make);

} // namespace podlane::ctl
