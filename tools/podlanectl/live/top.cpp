// SPDX-License-Identifier: MIT
// top: the busiest pods, on the whole screen, refreshed each second.
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/cli/until_signal.hpp"
#include "tools/podlanectl/live/nouns.hpp"
#include "tools/podlanectl/views/counter.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "maps/clock.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>

namespace podlane::ctl {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr int kInterval = 1000; // ms

struct Busy {
    std::string pod;
    std::string interface;
    double from_bits = 0; // all per second
    double to_bits = 0;
    double from_packets = 0;
    double to_packets = 0;
    double drops = 0;
};

Cell rate_cell(double bits) {
    const auto whole = static_cast<std::uint64_t>(bits);
    return {whole == 0 ? "-" : output::rate_words(whole), whole};
}
Cell count_cell(double per_second, Tone tone = Tone::plain) {
    const auto whole = static_cast<std::uint64_t>(std::lround(per_second));
    return {whole == 0 ? "-" : std::to_string(whole), whole, whole == 0 ? Tone::plain : tone};
}

constexpr std::array<Column<Busy>, 7> kTopColumns = {{
    {{"POD", "", "pod"}, [](const Busy &b) { return text_cell(b.pod, Tone::strong); }},
    {{"INTERFACE", "", "host_interface"}, [](const Busy &b) { return text_cell(b.interface); }},
    {{"FROM POD", "", "from_pod_bits_per_s", Align::right}, [](const Busy &b) { return rate_cell(b.from_bits); }},
    {{"TO POD", "", "to_pod_bits_per_s", Align::right}, [](const Busy &b) { return rate_cell(b.to_bits); }},
    {{"PKT/S FROM", "", "from_pod_packets_per_s", Align::right},
     [](const Busy &b) { return count_cell(b.from_packets); }},
    {{"PKT/S TO", "", "to_pod_packets_per_s", Align::right}, [](const Busy &b) { return count_cell(b.to_packets); }},
    {{"DROPS/S", "", "drops_per_s", Align::right}, [](const Busy &b) { return count_cell(b.drops, Tone::bad); }},
}};

struct Order {
    std::string_view name;
    double (*of)(const Busy &busy); // null: by name
};
constexpr std::array<Order, 7> kOrders = {{
    {"pod", nullptr},
    {"traffic", [](const Busy &b) { return b.from_bits + b.to_bits; }},
    {"from-pod", [](const Busy &b) { return b.from_bits; }},
    {"to-pod", [](const Busy &b) { return b.to_bits; }},
    {"packets-from", [](const Busy &b) { return b.from_packets; }},
    {"packets-to", [](const Busy &b) { return b.to_packets; }},
    {"drops", [](const Busy &b) { return b.drops; }},
}};
constexpr std::size_t kByTraffic = 1;

// One reading of all counters.
struct Reading {
    std::uint64_t time_ns = 0;
    std::vector<EndpointEntry> entries{};
    std::map<std::uint32_t, counters> totals{};
};

Result<Reading> read_all(const Selection &selection, const World &world) {
    Reading reading;
    // A node without pods is not an error: some may follow.
    auto entries = selected_endpoints(selection, world);
    if (!entries && !(entries.error().code == ErrorCode::missing && !selection.selects_all()))
        return std::move(entries).error();
    if (entries)
        reading.entries = *std::move(entries);
    for (const EndpointCounters &one : TRY(read_counters(reading.entries, false, world)))
        reading.totals[one.ifindex] = one.total;
    reading.time_ns = monotonic_ns();
    return reading;
}

bool is_to_pod(std::size_t reason) {
    return reason == REASON_RECEIVED_DIRECT || reason == REASON_RECEIVED_HOST || reason == REASON_RECEIVED_UPLINK;
}

Busy busy_between(const counters &before, const counters &after, double seconds) {
    Busy busy;
    constexpr double kBits = 8;
    for (std::size_t i = 0; i < COUNTER_REASONS; ++i) {
        // Counters restart if a new endpoint reuses an ifindex.
        const count &then = before.by_reason[i];
        const count &now = after.by_reason[i];
        if (now.packets <= then.packets)
            continue;
        const double packets = static_cast<double>(now.packets - then.packets) / seconds;
        const double bits = static_cast<double>(now.bytes - then.bytes) * kBits / seconds;
        const bool drops = i < kReasons.size() && kReasons[i].kind == REASON_KIND_DROP;
        (drops ? busy.drops : is_to_pod(i) ? busy.to_packets : busy.from_packets) += packets;
        if (!drops)
            (is_to_pod(i) ? busy.to_bits : busy.from_bits) += bits;
    }
    return busy;
}

std::vector<Busy> compare(const Reading &before, const Reading &after) {
    std::vector<Busy> all;
    const double seconds = std::max(static_cast<double>(after.time_ns - before.time_ns) / kNanoseconds, 0.001);
    for (const auto &[key, record] : after.entries) {
        const auto then = before.totals.find(record.ifindex);
        const auto now = after.totals.find(record.ifindex);
        Busy busy;
        if (then != before.totals.end() && now != after.totals.end())
            busy = busy_between(then->second, now->second, seconds);
        busy.pod = pod_words(key, record);
        busy.interface = field_text(record.host_ifname);
        all.push_back(std::move(busy));
    }
    return all;
}

void sort_by(std::vector<Busy> &all, std::size_t order, bool reversed) {
    const auto value = kOrders.at(order).of;
    std::ranges::stable_sort(all, [&](const Busy &a, const Busy &b) {
        const Busy &left = reversed ? b : a;
        const Busy &right = reversed ? a : b;
        return value == nullptr ? left.pod < right.pod : value(left) > value(right);
    });
}

// Takes over the terminal: alternate screen, no cursor, unbuffered keys. The destructor restores it.
class Screen {
  public:
    Screen() {
        tcgetattr(STDIN_FILENO, &before_);
        termios raw = before_;
        raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        put("\033[?1049h\033[?25l");
    }
    ~Screen() {
        put("\033[?25h\033[?1049l");
        tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    Screen(const Screen &) = delete;
    Screen &operator=(const Screen &) = delete;
    Screen(Screen &&) = delete;
    Screen &operator=(Screen &&) = delete;

    // One write, line by line over the previous screen: no flicker.
    static void draw(const std::vector<std::string> &lines) {
        std::string text = "\033[H";
        for (std::size_t i = 0; i < lines.size(); ++i)
            text += lines[i] + "\033[K" + (i + 1 < lines.size() ? "\r\n" : "");
        put(text + "\033[J");
    }
    static winsize size() {
        winsize now{};
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) != 0 || now.ws_row == 0)
            now = {24, 80, 0, 0};
        return now;
    }

  private:
    static void put(std::string_view text) {
        while (!text.empty()) {
            const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
            if (written < 0 && errno != EINTR)
                return;
            text.remove_prefix(written > 0 ? static_cast<std::size_t>(written) : 0);
        }
    }
    termios before_{};
};

// State changed by the keys.
struct View {
    std::size_t order = kByTraffic;
    bool reversed = false;
    bool quit = false;

    void press(char key) {
        if (key == 'q' || key == '\x03')
            quit = true;
        else if (key == '>')
            order = (order + 1) % kOrders.size();
        else if (key == '<')
            order = (order + kOrders.size() - 1) % kOrders.size();
        else if (key == 'r')
            reversed = !reversed;
    }
};

std::vector<std::string> lines_of(std::vector<Busy> all, const View &view, const World &world) {
    const winsize size = Screen::size();
    sort_by(all, view.order, view.reversed);
    output::Style style = world.style;
    style.width = size.ws_col;
    std::vector<std::string> lines{std::to_string(all.size()) + " endpoints by " +
                                   std::string(kOrders.at(view.order).name) + (view.reversed ? ", reversed" : "") +
                                   "    < > order   r reverse   q quit"};
    lines.front().resize(std::min<std::size_t>(lines.front().size(), size.ws_col));
    lines.emplace_back();
    const std::string text = output::table_text(output::make_table(kTopColumns, all), style);
    for (std::size_t at = 0; at < text.size() && lines.size() < size.ws_row;) {
        const std::size_t end = text.find('\n', at);
        lines.push_back(text.substr(at, end - at));
        at = end == std::string::npos ? text.size() : end + 1;
    }
    return lines;
}

// Until the timeout, a key, a change of the window's size or a signal.
void wait_for_key(View &view, int milliseconds) {
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    if (poll(&keys, 1, milliseconds) != 1)
        return;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) == 1)
        view.press(key);
    else
        view.quit = true;
}

Result<std::size_t> order_of(const Call &call) {
    if (!call.has(Opt::sort))
        return kByTraffic;
    const auto found = std::ranges::find(kOrders, *call.value(Opt::sort), &Order::name);
    if (found != kOrders.end())
        return static_cast<std::size_t>(found - kOrders.begin());
    std::string names;
    for (const Order &order : kOrders)
        names += (names.empty() ? "" : ", ") + std::string(order.name);
    return usage_error("unknown order \"" + *call.value(Opt::sort) + "\"", "orders: " + names);
}

Result<int> print_once(const Selection &selection, const View &view, World &world) {
    const Reading before = TRY(read_all(selection, world));
    poll(nullptr, 0, kInterval);
    std::vector<Busy> all = compare(before, TRY(read_all(selection, world)));
    sort_by(all, view.order, view.reversed);
    world.print(output::make_table(kTopColumns, all));
    return 0;
}

Result<int> top(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    View view;
    view.order = TRY(order_of(call));
    if (world.json || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
        return print_once(selection, view, world);
    Reading before = TRY(read_all(selection, world));
    const UntilSignal until;
    const Screen screen;
    std::vector<Busy> all = compare(before, before);
    std::uint64_t due = before.time_ns;
    while (!view.quit && !UntilSignal::stopped()) {
        Reading now = TRY(read_all(selection, world));
        const std::uint64_t time_ns = now.time_ns;
        if (time_ns >= due + std::uint64_t{kInterval} * kNsPerMs) {
            all = compare(before, now);
            due = time_ns;
            before = std::move(now);
        }
        static_cast<void>(UntilSignal::resized());
        Screen::draw(lines_of(all, view, world));
        const auto past = static_cast<int>((time_ns - due) / kNsPerMs);
        wait_for_key(view, std::max(kInterval - past, 1));
    }
    return 0;
}

constexpr std::array<Command, 1> kTopCommands = {{
    {"", "Show the traffic of each pod on the whole screen, the busiest first.", kSelect | kPlain | Opts{Opt::sort},
     kWhich,
     "Keys: < and > change the order, r reverses it, q quits. Orders: pod, traffic, from-pod, to-pod, packets-from,\n"
     "packets-to, drops. Without a terminal, and with --json, it prints the next second once.",
     top},
}};

} // namespace

const Noun kTopNoun = {"top", "the busiest pods", kTopCommands};

} // namespace podlane::ctl
