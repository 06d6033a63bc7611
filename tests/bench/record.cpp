// SPDX-License-Identifier: MIT
// bench_record: what an ADD pays for its record on disk.
#include "loader/record.hpp"
#include "tests/bench/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_record: CPU time of the record on disk of an ADD, in microseconds

usage: bench_record [--directory DIRECTORY] [--rounds N] [--pause US]

  --directory DIRECTORY  is created, and removed with all that is in it (/var/lib/podlane-bench)
  --rounds N             (300)
  --pause US             after each round, so that caches are as cold as an ADD finds them (0)

"first" is what ADD writes before it makes anything, "addition" what it adds when it knows the entry. The kernel begins to
write the first one at once if it is of a lease. The lowest tenth and the median of all rounds. ext4 passes over the
inodes that were deleted within a minute, one after the other: so let one pass between two runs.
)";

struct Settings {
    std::string directory = "/var/lib/podlane-bench";
    unsigned rounds = 300;
    unsigned pause_us = 0;
};

double cpu_us() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

AttachmentRecord record_of(unsigned number) {
    AttachmentRecord record;
    record.container_id = "bench" + std::to_string(number) + std::string(50, 'c');
    record.ifname = "eth0";
    record.network = "pods";
    record.root = "/sys/fs/bpf/podlane";
    record.boot_id = "00000000-0000-4000-8000-000000000000";
    record.netns = "/run/netns/cni-00000000-0000-4000-8000-000000000000";
    record.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench";
    record.config = "{" + std::string(600, ' ') + "}";
    return record;
}

template <typename Write> double cost_of(Write write) {
    const double since = cpu_us();
    const auto written = write();
    const double cost = cpu_us() - since;
    if (!written) {
        std::fprintf(stderr, "bench_record: %s\n", written.error().message.c_str());
        std::exit(1);
    }
    return cost;
}

void show(const char *what, std::vector<double> costs) {
    std::ranges::sort(costs);
    std::printf("%-28s %6.1f %6.1f\n", what, costs[costs.size() / 10], costs[costs.size() / 2]);
}

void measure(const Settings &settings, const std::string &root, Begin begin) {
    const AttachmentRecords records(settings.directory, root);
    std::vector<double> first, addition, both;
    for (unsigned number = 0; number < settings.rounds; ++number) {
        const AttachmentRecord record = record_of(number);
        first.push_back(cost_of([&] { return records.write(record, begin); }));
        AttachmentRecord news;
        news.container_id = record.container_id;
        news.ifname = record.ifname;
        news.lease = "{" + std::string(300, ' ') + "}";
        news.entry.emplace();
        addition.push_back(cost_of([&] { return records.add(news); }));
        both.push_back(first.back() + addition.back());
        usleep(settings.pause_us);
    }
    std::puts(root.c_str());
    show("  first", first);
    show("  addition", addition);
    show("  both", both);
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) {
    using namespace podlane::bench;
    Settings settings;
    if (const auto code = read_options(argc, argv, kHelp,
                                       {{"directory", into(settings.directory)},
                                        {"rounds", into(settings.rounds, 1, 1e6)},
                                        {"pause", into(settings.pause_us, 0, 1e6)}}))
        return *code;
    measure(settings, "with a lease", podlane::Begin::at_once);
    measure(settings, "without a lease", podlane::Begin::later);
    std::filesystem::remove_all(settings.directory);
}
