// SPDX-License-Identifier: MIT
#include "few_cpus.hpp"

namespace podlane {
namespace {

constexpr int kFew = 8;

// Spread over those that are allowed.
cpu_set_t few_of(const cpu_set_t &allowed, int count) {
    cpu_set_t few{};
    for (int cpu = 0, index = 0; cpu < CPU_SETSIZE && index < count; ++cpu)
        if (CPU_ISSET(cpu, &allowed) && index++ * kFew % count < kFew)
            CPU_SET(cpu, &few);
    return few;
}

bool may_use_many() {
    cpu_set_t allowed{};
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > kFew;
}

} // namespace

OnFewCpus::OnFewCpus() noexcept {
    static const bool many = may_use_many(); // of the process: one call for all its entries
    if (!many || sched_getaffinity(0, sizeof allowed_, &allowed_) != 0)
        return;
    const cpu_set_t few = few_of(allowed_, CPU_COUNT(&allowed_));
    is_moved_ = sched_setaffinity(0, sizeof few, &few) == 0;
}

OnFewCpus::~OnFewCpus() {
    if (is_moved_)
        sched_setaffinity(0, sizeof allowed_, &allowed_);
}

} // namespace podlane
