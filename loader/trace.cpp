// SPDX-License-Identifier: MIT
#include "loader/trace.hpp"

#include "loader/embedded.hpp"
#include "loader/net/ipsec.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/programs.hpp"
#include "loader/upgrade.hpp"
#include "maps/tables.hpp"
#include "traced.skel.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace podlane {
namespace {

constexpr std::uint32_t kEventBytes = 1U << 18U;
constexpr std::size_t kHeadroom = 256; // an answer may be longer than its question

using RingBuffer = std::unique_ptr<ring_buffer, void (*)(ring_buffer *)>;

// The records of a run as they come: a step, then its key, then its value.
struct Records {
    std::vector<TracedStep> steps{};
    bool key_is_next = false;
    bool value_is_next = false;

    void take(const std::uint8_t *data, std::size_t size) {
        if (key_is_next) {
            steps.back().key.assign(data, data + size);
            key_is_next = false;
        } else if (value_is_next) {
            steps.back().value.assign(data, data + size);
            value_is_next = false;
        } else if (size == sizeof(step)) {
            TracedStep &one = steps.emplace_back();
            std::memcpy(&one.head, data, sizeof one.head);
            const bool has_value =
                one.head.kind == TRACE_WRITE || (one.head.kind == TRACE_LOOKUP && one.head.answer != 0);
            key_is_next = one.head.key_size != 0;
            value_is_next = has_value && one.head.value_size != 0;
        }
    }
};

int take_record(void *records, void *data, std::size_t size) {
    static_cast<Records *>(records)->take(static_cast<const std::uint8_t *>(data), size);
    return 0;
}

// Loads the copy of the program; it reports its steps to `events`.
Result<Fd> load_copy(const std::string &root, const char *program, const Fd &events, const LoadSettings &settings) {
    const auto all = TRY(open_programs<traced_bpf>({program}, settings));
    all->rodata->node_netns = TRY(netns_of(root));
    all->rodata->traced_policies = TRY(net::has_ipsec_policies());
    TRY(reuse_maps(all->obj, live_directory(root)));
    if (bpf_map__reuse_fd(all->maps.events_v1, events.get()) != 0)
        return load_error("sharing map events_v1", errno);
    TRY(load_object(all->obj, "loading a traced program"));
    Fd copy(fcntl(bpf_program__fd(bpf_object__find_program_by_name(all->obj, program)), F_DUPFD_CLOEXEC, 0));
    if (!copy)
        return system_error(ErrorCode::bpf, "keeping a traced program", errno);
    return copy;
}

} // namespace

Result<Tracer> Tracer::load(const std::string &root, const char *program) {
    const Fd pinned = TRY(open_program(root, program)); // an upgrade after this gives the hook another tag
    if (!TRY(is_current(root)))
        return Error{
            ErrorCode::plugin_not_available,
            "the programs of this node are of another build than this podlanectl, which could only answer for "
            "its own",
            "use the podlanectl that came with the podlane in use, or bring the node to this one's: podlanectl "
            "upgrade"};
    keep_libbpf_log();
    Fd events(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "steps", 0, 0, kEventBytes, nullptr));
    if (!events)
        return system_error(ErrorCode::bpf, "making a ring buffer", errno);
    LoadSettings settings;
    TRY(read_constants(pinned.get(), settings));
    settings.replies = TRY(programs_distinguish_replies(root));
    Fd copy = TRY(load_copy(root, program, events, settings));
    std::string tag = TRY(program_facts(pinned.get())).tag;
    return Tracer(std::move(copy), std::move(events), std::move(tag), settings.mark);
}

Result<TracedRun> Tracer::run(std::uint32_t ifindex, const Bytes &frame, std::optional<std::uint32_t> came_by) const {
    TracedRun run;
    Records records;
    const RingBuffer ring(ring_buffer__new(events_.get(), take_record, &records, nullptr), &ring_buffer__free);
    if (!ring)
        return system_error(ErrorCode::bpf, "reading a ring buffer", errno);
    __sk_buff context{};
    context.ifindex = ifindex;
    if (came_by) {
        context.ingress_ifindex = *came_by;
        context.mark = mark_;
    }
    run.frame.resize(frame.size() + kHeadroom);
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.data_in = frame.data();
    options.data_size_in = static_cast<__u32>(frame.size());
    options.data_out = run.frame.data();
    options.data_size_out = static_cast<__u32>(run.frame.size());
    options.ctx_in = &context;
    options.ctx_size_in = sizeof context;
    if (const int failed = bpf_prog_test_run_opts(program_.get(), &options); failed != 0)
        return Error{ErrorCode::bpf,
                     std::string("the kernel does not run the program over this packet: ") + std::strerror(-failed),
                     failed == -EINVAL ? "an Ethernet or IP header that is cut short is discarded before any program"
                                       : "",
                     -failed};
    if (ring_buffer__consume(ring.get()) < 0)
        return system_error(ErrorCode::bpf, "reading a ring buffer", errno);
    run.frame.resize(options.data_size_out);
    run.verdict = static_cast<int>(options.retval);
    run.steps = std::move(records.steps);
    return run;
}

} // namespace podlane
