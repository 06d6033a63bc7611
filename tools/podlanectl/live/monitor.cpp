// SPDX-License-Identifier: MIT
// monitor: drops, and with --all samples of all packets, as they happen.
#include "maps/text.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/cli/until_signal.hpp"
#include "tools/podlanectl/live/nouns.hpp"
#include "tools/podlanectl/live/packet_filter.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/frame.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "maps/clock.hpp"

#include <arpa/inet.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

namespace podlane::ctl {
namespace {

constexpr std::uint64_t kLease = 3 * kNsPerSecond; // how long the programs continue to report after this process dies
constexpr int kPoll = 100;                         // ms

// The entry the programs read, mapped into this process.
class Watch {
  public:
    static Result<Watch> open(const std::string &root) {
        Watches map = TRY(open_watches(root, Access::read_write));
        void *page = mmap(nullptr, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE, MAP_SHARED,
                          map.fd(), 0);
        if (page == MAP_FAILED)
            return system_error(ErrorCode::bpf, "mapping map " + map.path(), errno);
        return Watch(std::move(map), static_cast<watch *>(page));
    }
    Watch(Watch &&other) noexcept : map_(std::move(other.map_)), entry_(std::exchange(other.entry_, nullptr)) {}
    Watch &operator=(Watch &&) = delete;
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;
    ~Watch() {
        if (entry_ == nullptr)
            return;
        if (ours_)
            store(entry_->mode, std::uint32_t{WATCH_NOTHING});
        munmap(entry_, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    }

    // An error if another process watches.
    Result<void> claim() {
        const auto pid = static_cast<pid_t>(entry_->pid);
        if (entry_->mode != WATCH_NOTHING && entry_->until_ns > monotonic_ns() && kill(pid, 0) == 0)
            return Error{ErrorCode::already_exists, "process " + std::to_string(pid) + " watches already",
                         "only one process can watch at a time: stop it, or use its output"};
        ours_ = true;
        store(entry_->mode, std::uint32_t{WATCH_NOTHING});
        store(entry_->pid, static_cast<std::uint32_t>(getpid()));
        return {};
    }
    void begin(watch_mode mode, std::uint32_t one_in) const {
        store(entry_->one_in, one_in);
        go_on();
        store(entry_->mode, static_cast<std::uint32_t>(mode));
    }
    void go_on() const { store(entry_->until_ns, monotonic_ns() + kLease); }
    [[nodiscard]] std::uint64_t lost() const { return __atomic_load_n(&entry_->lost, __ATOMIC_RELAXED); }

  private:
    Watch(Watches map, watch *entry) : map_(std::move(map)), entry_(entry) {}
    static void store(__u32 &field, std::uint32_t value) { __atomic_store_n(&field, value, __ATOMIC_RELEASE); }
    static void store(__u64 &field, std::uint64_t value) { __atomic_store_n(&field, value, __ATOMIC_RELEASE); }

    Watches map_;
    watch *entry_;
    bool ours_ = false;
};

// Selects events and prints them.
struct Viewer {
    World &world;
    std::map<std::uint32_t, std::string> pods{}; // by ifindex
    std::map<std::uint32_t, std::string> interfaces{};
    std::vector<std::uint32_t> chosen{}; // none: all
    std::optional<PacketFilter> filter{};
    std::uint64_t limit = 0; // lines; 0: none
    std::uint64_t shown = 0;
    std::int64_t realtime_offset = 0;

    [[nodiscard]] bool done() const { return limit != 0 && shown >= limit; }
    void show(const event &one);
    void show_lost(std::uint64_t lost) const;
};

std::string clock_words(std::uint64_t realtime_ns) {
    const auto seconds = static_cast<std::time_t>(realtime_ns / kNsPerSecond);
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%02d:%02d:%02d.%06u", local.tm_hour, local.tm_min, local.tm_sec,
                  static_cast<unsigned>(realtime_ns % kNsPerSecond / 1000));
    return text.data();
}

// One line each, flushed at once.
std::string json_line(const output::Value &value) {
    std::string text = output::json_text(value);
    std::string line;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\n') {
            line += text[i];
            continue;
        }
        while (i + 1 < text.size() && text[i + 1] == ' ')
            ++i;
    }
    return line + "\n";
}

void Viewer::show(const event &one) {
    const std::span frame(one.frame, std::min<std::size_t>(one.captured, EVENT_FRAME_BYTES));
    if (done() || (!chosen.empty() && std::ranges::find(chosen, one.ifindex) == chosen.end()) ||
        (filter && !filter->matches(frame, one.frame_size)))
        return;
    ++shown;
    const FrameFacts facts = read_frame(frame);
    const std::uint64_t time = one.time_ns + static_cast<std::uint64_t>(realtime_offset);
    const auto pod = pods.find(one.ifindex);
    auto name = interfaces.find(one.ifindex);
    if (name == interfaces.end())
        name = interfaces.emplace(one.ifindex, interface_name(one.ifindex)).first;
    if (world.json) {
        world.print(json_line(
            output::Object{{"time_ns", time},
                           {"reason", reason_name(one.reason)},
                           {"kind", reason_kind_name(one.reason)},
                           {"pod", pod == pods.end() ? output::Value() : output::Value(pod->second)},
                           {"interface", name->second},
                           {"ifindex", one.ifindex},
                           {"direction", one.is_egress != 0 ? "egress" : "ingress"},
                           {"protocol", facts.is_ip ? output::Value(protocol_name(facts.protocol)) : output::Value()},
                           {"source", facts.is_ip ? output::Value(to_string(facts.source)) : output::Value()},
                           {"source_port", std::uint64_t{ntohs(facts.source_port)}},
                           {"destination", facts.is_ip ? output::Value(to_string(facts.destination)) : output::Value()},
                           {"destination_port", std::uint64_t{ntohs(facts.destination_port)}},
                           {"bytes", one.frame_size}}));
        return;
    }
    const bool drops = reason_kind_name(one.reason) == "drop";
    world.print(clock_words(time) + "  " +
                output::toned(reason_name(one.reason), drops ? output::Tone::bad : output::Tone::plain, world.style) +
                "  " + (pod == pods.end() ? name->second : pod->second) + (one.is_egress != 0 ? " <- " : " -> ") +
                frame_words(facts) + ", " + std::to_string(one.frame_size) + " bytes\n");
}

void Viewer::show_lost(std::uint64_t lost) const {
    if (world.json)
        return world.print(json_line(output::Object{{"lost", lost}}));
    const std::string text = std::to_string(lost) + " events were lost: they came faster than they were read\n";
    std::fwrite(text.data(), 1, text.size(), world.err);
}

Result<std::uint64_t> number_of(const Call &call, Opt option, std::uint64_t otherwise) {
    if (!call.has(option))
        return otherwise;
    const std::string &text = *call.value(option);
    const auto number = parse_number<std::uint32_t>(text);
    if (!number || *number == 0)
        return usage_error("\"" + text + "\" is not a positive number");
    return *number;
}

Result<Viewer> make_viewer(const Call &call, World &world) {
    Viewer viewer{world};
    Call selecting = call;
    selecting.argument.clear(); // the filter's
    const Selection selection = TRY(Selection::of(selecting));
    for (const auto &[key, record] : TRY(selected_endpoints(selection, world))) {
        viewer.pods[record.ifindex] = pod_words(key, record);
        if (!selection.selects_all())
            viewer.chosen.push_back(record.ifindex);
    }
    if (!call.argument.empty())
        viewer.filter = TRY(PacketFilter::compile(call.argument));
    viewer.limit = TRY(number_of(call, Opt::limit, 0));
    viewer.realtime_offset = static_cast<std::int64_t>(realtime_ns() - monotonic_ns());
    return viewer;
}

struct Feed {
    Viewer *viewer; // null at first: old events belong to an earlier watch
};

int take_event(void *context, void *data, std::size_t size) {
    const auto *feed = static_cast<const Feed *>(context);
    event one{};
    if (feed->viewer != nullptr && size >= sizeof one) {
        std::memcpy(&one, data, sizeof one);
        feed->viewer->show(one);
    }
    return 0;
}

Result<int> monitor(const Call &call, World &world) {
    constexpr std::uint64_t kSample = 100;
    TRY(check_live_directory(world.bpffs));
    Viewer viewer = TRY(make_viewer(call, world));
    const auto one_in = static_cast<std::uint32_t>(TRY(number_of(call, Opt::sample, kSample)));
    const bool all = call.has(Opt::all) || call.has(Opt::sample);
    Watch watch = TRY(Watch::open(world.bpffs));
    const Fd events(bpf_obj_get(pin_path(world.bpffs, PODLANE_MAP_EVENTS).c_str()));
    if (!events)
        return system_error(ErrorCode::bpf, "opening the ring buffer of events", errno);
    Feed feed{nullptr};
    const std::unique_ptr<ring_buffer, void (*)(ring_buffer *)> ring(
        ring_buffer__new(events.get(), take_event, &feed, nullptr), &ring_buffer__free);
    if (!ring)
        return system_error(ErrorCode::bpf, "reading the ring buffer of events", errno);
    const UntilSignal until;
    TRY(watch.claim());
    ring_buffer__consume(ring.get());
    feed.viewer = &viewer;
    std::uint64_t lost = watch.lost();
    watch.begin(all ? WATCH_ALL : WATCH_DROPS, one_in);
    if (!world.json)
        std::fputs(all ? "watching all packets\n" : "watching drops\n", world.err);
    while (!UntilSignal::stopped() && !viewer.done() && world.write_errno == 0) {
        watch.go_on();
        const int taken = ring_buffer__poll(ring.get(), kPoll);
        if (taken < 0 && taken != -EINTR)
            return system_error(ErrorCode::bpf, "reading the ring buffer of events", -taken);
        if (const std::uint64_t now = watch.lost(); now != lost) {
            viewer.show_lost(now - lost);
            lost = now;
        }
        static_cast<void>(world.flush());
    }
    if (world.write_errno == EPIPE)
        world.write_errno = 0; // the reader has closed the pipe
    return 0;
}

constexpr std::array<Command, 1> kMonitorCommands = {{
    {"",
     "Show each dropped packet: time, reason, pod, source, destination, length.",
     kSelect | kPlain | Opts{Opt::all, Opt::sample, Opt::limit},
     {"FILTER", false, "an expression as tcpdump takes it (pcap-filter(7)), in quotes"},
     "--all also shows one in 100 of the packets that are not dropped; --sample N one in N (1: each).\n"
     "\"->\": from the pod or the uplink, \"<-\": to it. If packets come faster than they can be shown, the number of\n"
     "lost ones is printed. One process can watch at a time. --json prints an object a line.",
     monitor},
}};

} // namespace

const Noun kMonitorNoun = {"monitor", "drops, or all packets, as they happen", kMonitorCommands};

} // namespace podlane::ctl
