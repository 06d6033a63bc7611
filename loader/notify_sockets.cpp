// SPDX-License-Identifier: MIT
#include "loader/notify_sockets.hpp"

#include "loader/embedded.hpp"
#include "loader/net/namespace.hpp"
#include "loader/object.hpp"
#include "maps/abi/interface.h"
#include "maps/tables.hpp"
#include "cut_window.skel.h"
#include "notify_sockets.skel.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

namespace podlane {
namespace {

// Older kernels are not tried: the iterator would visit every socket of the machine in vain.
bool is_new_enough() {
    constexpr std::pair kFirst{6U, 12U};
    utsname kernel{};
    std::pair<unsigned, unsigned> version;
    return uname(&kernel) == 0 && std::sscanf(kernel.release, "%u.%u", &version.first, &version.second) == 2 &&
           version >= kFirst;
}

// Unlike a registration without a link, it ends with the process, whatever ends that.
Result<Fd> register_window(const bpf_map *window) {
    constexpr auto kStructOps = static_cast<bpf_attach_type>(44); // BPF_STRUCT_OPS, since 6.4
    // Only checks the functions. libbpf registers them from 1.2 on.
    const std::unique_ptr<bpf_link, int (*)(bpf_link *)> ready(bpf_map__attach_struct_ops(window), &bpf_link__destroy);
    if (!ready)
        return load_error("registering pl_cut", errno);
    const bool is_linked = bpf_link__fd(ready.get()) != bpf_map__fd(window);
    Fd link(is_linked ? fcntl(bpf_link__fd(ready.get()), F_DUPFD_CLOEXEC, 3)
                      : bpf_link_create(bpf_map__fd(window), 0, kStructOps, nullptr));
    if (!link)
        return load_error("registering pl_cut", errno);
    return link;
}

} // namespace

Result<SocketNotifier> SocketNotifier::load(const std::string &root) {
    if (!is_new_enough())
        return Error{ErrorCode::plugin_not_available, "kernel: older than 6.12"};
    const Fd pace = TRY(open_program(root, PODLANE_PROGRAM_PACE));
    const ProgramMap paced = TRY(find_program_map(pace.get(), "paced_sockets")); // it has no pin
    keep_libbpf_log();
    Object object(notify_sockets_bpf__open(), &notify_sockets_bpf__destroy);
    if (!object)
        return load_error("reading the embedded programs", errno);
    object->rodata->node_netns = TRY(net::own_netns());
    TRY(reuse_maps(object->obj, live_directory(root)));
    if (bpf_map__reuse_fd(object->maps.paced_sockets, paced.fd.get()) != 0)
        return load_error("sharing map paced_sockets", errno);
    TRY(load_object(object->skeleton, "loading pl_notify"));
    Window window(cut_window_bpf__open(), &cut_window_bpf__destroy);
    if (!window)
        return load_error("reading the embedded programs", errno);
    constexpr std::uint32_t kByLink = 1U << 13U; // BPF_F_LINK, since 6.4
    if (const int failed = bpf_map__set_map_flags(window->maps.pl_cut, kByLink); failed != 0)
        return load_error("preparing pl_cut", -failed);
    TRY(load_object(window->skeleton, "loading pl_cut"));
    Fd registered = TRY(register_window(window->maps.pl_cut));
    Fd sockets(bpf_link_create(bpf_program__fd(object->progs.pl_notify), 0, BPF_TRACE_ITER, nullptr));
    if (!sockets)
        return system_error(ErrorCode::plugin_not_available, "kernel: iterator of TCP sockets", errno);
    return SocketNotifier(std::move(object), std::move(window), std::move(registered), std::move(sockets));
}

void SocketNotifier::expect(std::uint32_t ifindex, std::uint32_t flags, const RateChanges &changes) const {
    object_->bss->coming_ifindex = ifindex;
    object_->bss->coming_flags =
        flags & (std::uint32_t{INTERFACE_LIMIT_INGRESS} | std::uint32_t{INTERFACE_LIMIT_EGRESS});
    for (std::size_t direction = 0; direction < changes.size(); ++direction) {
        object_->bss->changes[direction].was = changes.at(direction).was;
        object_->bss->changes[direction].rate = changes.at(direction).rate;
    }
}

Result<void> SocketNotifier::run() const {
    const Fd sockets(bpf_iter_create(sockets_.get()));
    std::array<char, 64> nothing{};
    while (true) {
        const ssize_t got = sockets ? read(sockets.get(), nothing.data(), nothing.size()) : -1;
        if (got == 0)
            return {};
        if (got < 0 && (!sockets || (errno != EAGAIN && errno != EINTR)))
            return system_error(ErrorCode::bpf, "reading the TCP sockets", errno);
    }
}

} // namespace podlane
