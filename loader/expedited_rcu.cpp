// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace podlane {
namespace {

constexpr const char *kPath = "/sys/kernel/rcu_expedited";
constexpr std::string_view kOff = "0\n";
constexpr std::string_view kOurs = "20556\n"; // any number but 0 is "on" to the kernel; this one is "PL"

bool write(const Fd &file, std::string_view value) {
    return pwrite(file.get(), value.data(), value.size(), 0) == static_cast<ssize_t>(value.size());
}

} // namespace

ExpeditedRcu::ExpeditedRcu() {
    Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    if (!file || flock(file.get(), LOCK_SH) != 0)
        return;
    std::array<char, 16> text{};
    const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
    const std::string_view value(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
    if ((value == kOff || value == kOurs) && write(file, kOurs))
        file_ = std::move(file);
}

ExpeditedRcu::~ExpeditedRcu() {
    if (file_ && flock(file_.get(), LOCK_EX | LOCK_NB) == 0)
        (void)write(file_, kOff);
}

} // namespace podlane
