// SPDX-License-Identifier: MIT
// Where the entries of maps are made and deleted.
#pragma once

#include <sched.h>

namespace podlane {

/**
 * Keeps the calling thread on a few of its CPUs, always the same ones, until it is destroyed. The kernel holds memory
 * in reserve, for good, on each CPU where an entry was made or deleted: up to 24 KiB of each map, or three entries
 * (kernel/bpf/memalloc.c, since Linux 6.1). On a machine of 256 CPUs that would be more than the maps take.
 * Does nothing if the thread may use no more than a few, or the kernel refuses.
 */
class OnFewCpus {
  public:
    OnFewCpus() noexcept;
    OnFewCpus(const OnFewCpus &) = delete;
    OnFewCpus &operator=(const OnFewCpus &) = delete;
    OnFewCpus(OnFewCpus &&) = delete;
    OnFewCpus &operator=(OnFewCpus &&) = delete;
    ~OnFewCpus();

  private:
    cpu_set_t allowed_{};
    bool is_moved_ = false;
};

} // namespace podlane
