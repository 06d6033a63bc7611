// SPDX-License-Identifier: MIT
#include "exposition.hpp"

#include "maps/printable.hpp"

#include <array>
#include <cstdio>

namespace podlane::output {
namespace {

// Escapes label values and help; help may contain quotes.
std::string escaped(std::string_view text, bool quotes) {
    std::string out;
    for (const char one : text)
        if (one == '\n')
            out += "\\n";
        else if (one == '\\' || (quotes && one == '"'))
            out += std::string("\\") + one;
        else
            out += one;
    return out;
}

std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", value);
    return text.data();
}

} // namespace

std::string_view Exposition::content_type(MetricsFormat format) {
    return format == MetricsFormat::openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                                : "text/plain; version=0.0.4; charset=utf-8";
}

// The older format names a counter's family as its samples.
void Exposition::begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    is_counter_ = type == "counter";
    const std::string family = name_ + (is_counter_ && !is_openmetrics() ? "_total" : "");
    text_ += "# HELP " + family + " " + escaped(help, is_openmetrics()) + "\n# TYPE " + family + " " +
             std::string(type) + "\n";
}

void Exposition::put(std::string_view suffix, const Labels &labels, std::uint64_t value) {
    put_text(suffix, labels, std::to_string(value));
}

void Exposition::put_text(std::string_view suffix, const Labels &labels, std::string_view value) {
    text_ += name_ + std::string(suffix);
    std::string_view separator = "{";
    for (const auto &[name, content] : labels) {
        text_ += std::string(separator) + std::string(name) + "=\"" + escaped(printable(content), true) + "\"";
        separator = ",";
    }
    text_ += std::string(labels.empty() ? "" : "}") + " " + std::string(value) + "\n";
}

void Exposition::distribution(const Labels &labels, const std::vector<double> &bounds,
                              const std::vector<std::uint64_t> &buckets, double sum) {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        below += buckets[i];
        Labels with_bound = labels;
        with_bound.emplace_back("le", i < bounds.size() ? number(bounds[i]) : "+Inf");
        put("_bucket", with_bound, below);
    }
    put_text("_sum", labels, number(sum));
    put("_count", labels, below);
}

} // namespace podlane::output
