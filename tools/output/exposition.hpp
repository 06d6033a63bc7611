// SPDX-License-Identifier: MIT
// Metrics as text: the Prometheus text format 0.0.4 (what node_exporter's textfile collector takes) and
// OpenMetrics 1.0.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::output {

enum class MetricsFormat { prometheus, openmetrics };

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// A family begins with its name without "_total"; its samples follow, and the next family ends it.
class Exposition {
  public:
    explicit Exposition(MetricsFormat format) : format_(format) {}

    void counter(std::string_view name, std::string_view help) { begin(name, "counter", help); }
    void gauge(std::string_view name, std::string_view help) { begin(name, "gauge", help); }
    void histogram(std::string_view name, std::string_view help) { begin(name, "histogram", help); }

    void sample(const Labels &labels, std::uint64_t value) { put(is_counter_ ? "_total" : "", labels, value); }
    // `buckets` count values up to each bound, each value once; the last has no bound.
    void distribution(const Labels &labels, const std::vector<double> &bounds,
                      const std::vector<std::uint64_t> &buckets, double sum);

    [[nodiscard]] std::string text() && { return std::move(text_) + (is_openmetrics() ? "# EOF\n" : ""); }
    [[nodiscard]] static std::string_view content_type(MetricsFormat format);

  private:
    [[nodiscard]] bool is_openmetrics() const { return format_ == MetricsFormat::openmetrics; }
    void begin(std::string_view name, std::string_view type, std::string_view help);
    void put(std::string_view suffix, const Labels &labels, std::uint64_t value);
    void put_text(std::string_view suffix, const Labels &labels, std::string_view value);

    MetricsFormat format_;
    std::string name_;
    bool is_counter_ = false;
    std::string text_;
};

} // namespace podlane::output
