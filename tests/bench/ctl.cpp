// SPDX-License-Identifier: MIT
// How long podlanectl takes on a node with many endpoints: bench_ctl PODLANECTL ENDPOINTS ROUNDS, on a bpffs at
// /sys/fs/bpf. Prints a JSON object a line, one for each command and round.
#include "loader/object.hpp"
#include "maps/entries.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace podlane;

namespace {

constexpr std::uint32_t kFirstIfindex = 1000000;
constexpr std::uint32_t kSubnet = 0xc6120000; // 198.18.0.0

template <typename T> T require(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "bench_ctl: %s\n", result.error().message.c_str());
        std::exit(1);
    }
    return std::move(result).value();
}
void require(const Result<void> &result) {
    if (!result) {
        std::fprintf(stderr, "bench_ctl: %s\n", result.error().message.c_str());
        std::exit(1);
    }
}

endpoint endpoint_number(std::uint32_t number) {
    endpoint record{};
    record.ifindex = kFirstIfindex + number;
    record.network = network_id("pods");
    record.mtu = 1500;
    record.flags = INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK | INTERFACE_ANTI_SPOOF | INTERFACE_GATEWAY;
    record.mode = ENDPOINT_MAIN;
    record.attach = ENDPOINT_CLSACT;
    record.address_count = 1;
    record.addresses[0] = ipv4_from_host_order(kSubnet + number);
    set_field(record.host_ifname, "cali" + std::to_string(number));
    set_field(record.network_name, "pods");
    set_field(record.pod_namespace, "namespace-" + std::to_string(number % 100));
    set_field(record.pod_name, "pod-" + std::to_string(number));
    return record;
}

void fill(const std::string &root, std::uint32_t endpoints) {
    require(ensure_loaded(root, {.endpoints = endpoints, .paths = 1024}));
    const Endpoints records = require(open_endpoints(root, Access::read_write));
    const Counters counts = require(open_counters(root, Access::read_write));
    for (std::uint32_t i = 0; i < endpoints; ++i) {
        const endpoint record = endpoint_number(i);
        require(records.update(require(make_endpoint_key("container" + std::to_string(i), "eth0")), record));
        require(counts.update(record.ifindex, counter_shares{}));
    }
}

struct Took {
    double wall_ms;
    double cpu_ms;
};

double milliseconds(const timeval &time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
}

Took run(const std::string &program, const std::string &root, std::vector<std::string> words) {
    words.insert(words.begin(), program);
    words.insert(words.end(), {"--bpffs", root});
    std::vector<char *> arguments;
    for (std::string &word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const auto began = std::chrono::steady_clock::now();
    pid_t child = 0;
    int status = 0;
    rusage used{};
    if (posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0 ||
        wait4(child, &status, 0, &used) < 0 || status != 0) {
        std::fprintf(stderr, "bench_ctl: %s failed\n", program.c_str());
        std::exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - began;
    return {wall.count(), milliseconds(used.ru_utime) + milliseconds(used.ru_stime)};
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: bench_ctl PODLANECTL ENDPOINTS ROUNDS\n");
        return 2;
    }
    const std::string root = "/sys/fs/bpf/podlane-bench-ctl";
    fill(root, static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10)));
    const std::array<std::vector<std::string>, 4> commands = {
        {{"endpoint", "list"}, {"endpoint", "list", "--json"}, {"endpoint", "show", "pod-1"}, {"counter", "list"}}};
    for (unsigned long round = 0; round < std::strtoul(argv[3], nullptr, 10); ++round)
        for (const std::vector<std::string> &command : commands) {
            std::string name;
            for (const std::string &word : command)
                name += (name.empty() ? "" : " ") + word;
            const Took took = run(argv[1], root, command);
            std::printf("{\"command\": \"%s\", \"ms\": %.2f, \"cpu_ms\": %.2f}\n", name.c_str(), took.wall_ms,
                        took.cpu_ms);
        }
    return 0;
}
