// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/by_container.hpp"

#include "loader/pins.hpp"
#include "maps/parallel.hpp"
#include "maps/tables.hpp"

#include <map>

namespace podlane::ctl {

Result<std::size_t> containers_at_a_time(const std::string &root) {
    return TRY(is_pinned(live_directory(root))) ? kContainersAtATime : 1;
}

void do_by_container(const std::vector<std::string> &container_ids, std::size_t at_a_time,
                     const std::function<void(std::size_t)> &act) {
    std::map<std::string, std::vector<std::size_t>> by_container;
    for (std::size_t i = 0; i < container_ids.size(); ++i)
        by_container[container_ids[i]].push_back(i);
    std::vector<Work> works;
    works.reserve(by_container.size());
    for (const auto &one : by_container)
        works.emplace_back([&act, &own = one.second]() -> Result<void> {
            for (const std::size_t i : own)
                act(i);
            return {};
        });
    static_cast<void>(run_parallel(works, at_a_time)); // none of them fails
}

} // namespace podlane::ctl
