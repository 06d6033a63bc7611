// SPDX-License-Identifier: MIT
#include "maps/parallel.hpp"

#include "maps/errors.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace podlane {

Result<void> run_parallel(std::span<const Work> works, std::size_t at_a_time) {
    std::vector<Result<void>> done(works.size());
    std::atomic<std::size_t> next = 0;
    const auto take = [&] { // the first that nobody has taken
        for (std::size_t mine = next++; mine < works.size(); mine = next++)
            done[mine] = works[mine]();
    };
    const std::size_t cpus = std::max(std::thread::hardware_concurrency(), 1U);
    const std::size_t most = std::min({works.size(), cpus, at_a_time});
    std::vector<std::thread> threads;
    try {
        while (threads.size() + 1 < most)
            threads.emplace_back(take);
    } catch (const std::system_error &) { // with those there are
    }
    take();
    for (std::thread &thread : threads)
        thread.join();
    Errors errors;
    for (Result<void> &one : done)
        errors.add(std::move(one));
    return std::move(errors).result();
}

} // namespace podlane
