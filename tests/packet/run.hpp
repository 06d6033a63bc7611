// SPDX-License-Identifier: MIT
// A node of two pods, filled as ADD fills it, in namespaces and on a bpffs of its own; runs the pinned programs on
// frames.
#pragma once

#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/trace.hpp"
#include "maps/abi/config.h"
#include "maps/clock.hpp"
#include "maps/tables.hpp"
#include "plugin/endpoint.hpp"
#include "loader/net/link.hpp"
#include "plugin/plan.hpp"
#include "tests/harness/test.hpp"
#include "tests/packet/routes.hpp"
#include "tests/packet/flow_key.hpp"
#include "tests/harness/frame.hpp"
#include "tests/harness/process.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/mount.h>

namespace podlane::packet {

using namespace frames;
using test::require;

inline constexpr Mac kHostMac = PODLANE_HOST_MAC;
inline constexpr Mac kPodMac{0x02, 0, 0, 0, 0, 0x0a};
inline constexpr Mac kPeerMac{0x02, 0, 0, 0, 0, 0x0b};
inline constexpr Mac kForeignMac{0x02, 0, 0, 0, 0, 0x66};
inline constexpr Mac kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr std::uint32_t kMtu = 1400; // the peer's; the pod's own is larger
inline constexpr std::uint32_t kAllFlags =
    INTERFACE_FAST_LOCAL | INTERFACE_FIRST_DIRECT | INTERFACE_ANTI_SPOOF | INTERFACE_GATEWAY;
inline constexpr std::uint32_t kLimitFlags = INTERFACE_LIMIT_INGRESS | INTERFACE_LIMIT_EGRESS |
                                             INTERFACE_LIMIT_UNPACED_INGRESS | INTERFACE_LIMIT_UNPACED_EGRESS |
                                             INTERFACE_LIMIT_EXEMPT;
inline constexpr int kDropped = 2; // TC_ACT_SHOT
inline constexpr int kRedirected = 7;
inline constexpr int kNext = -1;

inline ip_addr gateway4() { return ip("169.254.1.1"); }
inline ip_addr gateway6() { return ip("fe80::ecee:eeff:feee:eeee"); }

struct Pod {
    std::string name;
    std::uint32_t ifindex = 0; // of the host-side veth
    Mac mac{};
    std::vector<ip_addr> addresses;
    std::string network = "net-one";
    std::uint32_t mtu = 1500;
    std::uint32_t flags = kAllFlags;
    std::vector<Prefix> allowed{};
    cni::Config limits{}; // bandwidth and prefixes, as ADD reads them
};

// One program's run: the packet that results, and every counter that moved.
struct Counted {
    std::uint32_t ifindex;
    reason why;
    std::uint64_t packets;
    std::uint64_t bytes;
    bool operator==(const Counted &) const = default;
};
inline void PrintTo(const Counted &counted, std::ostream *out) {
    *out << "ifindex " << counted.ifindex << ": " << kReasons[counted.why].name << " packets " << counted.packets
         << " bytes " << counted.bytes;
}
struct Outcome {
    int verdict = 0;
    std::uint32_t mark = 0; // of the packet, afterwards
    std::uint64_t departure_ns = 0;
    std::uint32_t priority = 0;
    Bytes frame;
    std::vector<Counted> counted;
};

// Which program, on which host-side veth, with what GSO.
struct How {
    const char *program = PODLANE_PROGRAM_FROM_POD;
    std::uint32_t ifindex = 0; // 0: the pod's
    std::uint32_t gso_size = 0;
    std::uint32_t gso_segments = 0;
    std::uint32_t mark = 0;
    std::uint32_t came_by = 0; // the interface it was received on
    int repeat = 1;            // the same packet so often; the outcome is of the last run
};

// The programs and maps on a bpffs of this process, loaded once: the verifier takes longer than most of the tests.
class Loaded {
  public:
    static Loaded &once() {
        static Loaded loaded;
        return loaded;
    }
    [[nodiscard]] const std::string &root() const { return root_; }
    [[nodiscard]] const Tables &tables() const { return *tables_; }
    [[nodiscard]] const Paths &paths() const { return *paths_; }
    [[nodiscard]] const Flows &flows() const { return *flows_; }
    [[nodiscard]] const Fd &program(const std::string &name) const { return programs_.at(name); }
    const Tracer &tracer(const std::string &program) {
        auto known = tracers_.find(program);
        if (known == tracers_.end())
            known = tracers_.emplace(program, require(Tracer::load(root_, program.c_str()))).first;
        return known->second;
    }
    // Empties all maps that are keyed by what the tests fill in: as after the load.
    void empty() const {
        for (const std::string_view name : kMapNames) {
            const Fd map(bpf_obj_get(pin_path(root_, name).c_str()));
            const MapFacts facts = require(map_facts(map.get()));
            if (facts.type == BPF_MAP_TYPE_ARRAY || facts.type == BPF_MAP_TYPE_RINGBUF)
                continue;
            for (const auto &key : require(detail::keys(map.get(), std::string(name))))
                if (bpf_map_delete_elem(map.get(), key.data()) != 0)
                    throw std::runtime_error("emptying " + std::string(name) + ": " + std::strerror(errno));
        }
    }

  private:
    Loaded() {
        if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
            throw std::runtime_error(std::string("entering a mount namespace: ") + std::strerror(errno));
        if (mount("bpf", "/sys/fs/bpf", "bpf", 0, nullptr) != 0)
            throw std::runtime_error(std::string("mounting a bpffs: ") + std::strerror(errno));
        require(ensure_loaded(root_, LoadSettings{64, 1024}));
        tables_.emplace(require(Tables::open(root_)));
        paths_.emplace(require(open_paths(root_, Access::read_write)));
        flows_.emplace(require(open_flows(root_, Access::read_write)));
        for (const char *name :
             {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_FROM_UPLINK, PODLANE_PROGRAM_TO_UPLINK})
            programs_.emplace(name, require(open_program(root_, name)));
    }

    const std::string root_ = "/sys/fs/bpf/podlane";
    std::optional<Tables> tables_;
    std::optional<Paths> paths_;
    std::optional<Flows> flows_;
    std::map<std::string, Fd> programs_;
    std::map<std::string, Tracer> tracers_;
};

// Each test has a network namespace and empty maps; its bpffs goes with the process.
class Node {
  public:
    Node() {
        if (unshare(CLONE_NEWNET) != 0)
            throw std::runtime_error(std::string("entering a network namespace: ") + std::strerror(errno));
        loaded_.empty();
        require(
            loaded_.tables().counters.update(0, counter_shares{})); // of packets of no endpoint, as the load makes it
        pod = {"pod", make_veth("caliA"), kPodMac, {ip("192.0.2.10"), ip("2001:db8::10")}};
        peer = {"peer", make_veth("caliB"), kPeerMac, {ip("192.0.2.20"), ip("2001:db8::20")}, "net-one", kMtu};
        foreign = {"foreign", 4000, kForeignMac, {ip("192.0.2.30"), ip("2001:db8::30")}, "net-two"};
        unknown_ifindex = make_veth("caliC");
        route_to_pods();
        for (const Pod *each : {&pod, &peer, &foreign})
            put(*each);
    }
    Node(const Node &) = delete;
    Node &operator=(const Node &) = delete;

    // As ADD does; a pod that is there already is replaced.
    void put(const Pod &of) {
        cni::Request request{};
        request.container_id = of.name;
        request.ifname = "eth0";
        request.config = of.limits;
        request.config.name = of.network;
        request.config.allowed_sources = of.allowed;
        Plan facts;
        facts.ifindex = of.ifindex;
        facts.host_ifname = "cali" + of.name;
        facts.pod_mac = of.mac;
        facts.host_mac = kHostMac;
        facts.mtu = of.mtu;
        facts.flags = of.flags | (of.allowed.empty() ? 0U : std::uint32_t{INTERFACE_ALLOWED_SOURCES});
        facts.flags |= interface_flags_of(of.limits, 1) & kLimitFlags;
        facts.addresses = of.addresses;
        facts.link_local = link_local_from_mac(of.mac);
        const endpoint record = require(make_endpoint(request, facts));
        erase(of);
        Rollback rollback;
        require(tables().endpoints.insert(require(make_endpoint_key(of.name, "eth0")), record));
        require(put_endpoint(tables(), request.config, record));
        require(put_addresses(tables(), record));
        require(put_senders(tables(), record, rollback));
        rollback.commit();
    }

    // The same pod with these flags, too, or without them.
    void put_with(Pod &of, std::uint32_t flags) {
        of.flags |= flags;
        put(of);
    }
    void put_without(Pod &of, std::uint32_t flags) {
        of.flags &= ~flags;
        put(of);
    }

    void erase(const Pod &of) {
        require(erase_interface(tables(), of.ifindex));
        require(tables().endpoints.remove(require(make_endpoint_key(of.name, "eth0"))));
    }

    // As if conntrack had just confirmed the flow of this TCP or UDP packet, which the host does not translate, and
    // which comes by this interface, or by that of the pod with its source address.
    void confirm(const Bytes &frame, std::uint32_t ifindex = 0) {
        const flow_key key = key_of(frame);
        flow value{};
        value.source = key.source;
        value.destination = key.destination;
        value.source_port = key.source_port;
        value.destination_port = key.destination_port;
        value.ifindex = ifindex;
        for (const auto &[owned, owner] : require(tables().addresses.entries()))
            if (ifindex == 0 && owned.addr == key.source)
                value.ifindex = owner.ifindex;
        value.check = flow_check(&key);
        value.confirmed_ns = monotonic_ns() & ~FLOW_LOST;
        require(flows().update(key, value));
    }
    void forget_flows() {
        for (const auto &[key, value] : require(flows().entries()))
            require(flows().remove(key));
    }
    void forget_paths() {
        for (const auto &[key, value] : require(paths().entries()))
            require(paths().remove(key));
    }

    Outcome run(const Bytes &frame, How how = {}) {
        const bool ask = asks && how.gso_size == 0 && how.mark == 0; // a question has neither
        const auto before = snapshot();
        const std::size_t cached = ask ? require(paths().keys()).size() + require(flows().keys()).size() : 0;
        std::optional<TracedRun> asked;
        if (ask) {
            asked = require(loaded_.tracer(how.program).run(how.ifindex == 0 ? pod.ifindex : how.ifindex, frame));
            EXPECT_EQ(moved(before, snapshot()), std::vector<Counted>{}) << "a question is counted";
            EXPECT_EQ(require(paths().keys()).size() + require(flows().keys()).size(), cached) << "a query is cached";
        }
        Outcome outcome = run_uncounted(frame, how);
        outcome.counted = moved(before, snapshot());
        if (asked)
            expect_same(*asked, outcome);
        return outcome;
    }

    Outcome run_uncounted(const Bytes &frame, How how = {}) {
        Outcome outcome;
        if (!try_run(frame, how, outcome))
            throw std::runtime_error("test run: the kernel refuses " + hex(frame));
        return outcome;
    }

    // False if the kernel finds the frame not worth running: an Ethernet or IP header cut short.
    bool try_run(const Bytes &frame, How how, Outcome &outcome) {
        __sk_buff context{};
        context.ifindex = how.ifindex == 0 ? pod.ifindex : how.ifindex;
        context.gso_size = how.gso_size;
        context.gso_segs = how.gso_segments;
        context.mark = how.mark;
        context.ingress_ifindex = how.came_by;
        outcome.frame.resize(frame.size() + 256);
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = static_cast<__u32>(frame.size());
        options.data_out = outcome.frame.data();
        options.data_size_out = static_cast<__u32>(outcome.frame.size());
        options.ctx_in = &context;
        options.ctx_size_in = sizeof context;
        options.ctx_out = &context;
        options.ctx_size_out = sizeof context;
        options.repeat = how.repeat;
        const int error = bpf_prog_test_run_opts(loaded_.program(how.program).get(), &options);
        if (error == -EINVAL)
            return false;
        if (error != 0)
            throw std::runtime_error(std::string("test run: ") + std::strerror(-error));
        outcome.frame.resize(options.data_size_out);
        outcome.verdict = static_cast<int>(options.retval);
        outcome.mark = context.mark;
        outcome.departure_ns = context.tstamp;
        outcome.priority = context.priority;
        return true;
    }

    [[nodiscard]] const std::string &root() const { return loaded_.root(); }
    [[nodiscard]] const Tables &tables() const { return loaded_.tables(); }
    [[nodiscard]] const Paths &paths() const { return loaded_.paths(); }
    [[nodiscard]] const Flows &flows() const { return loaded_.flows(); }

    bool asks = false; // each packet is asked about first (loader/trace.hpp), and what comes of it compared
    Pod pod;           // sends
    Pod peer;          // on the same node and network
    Pod foreign;       // on the same node, in another network
    std::uint32_t unknown_ifindex = 0;

  private:
    static void expect_same(const TracedRun &asked, const Outcome &outcome) {
        std::set<std::pair<std::uint32_t, std::string_view>> predicted;
        std::set<std::pair<std::uint32_t, std::string_view>> counted;
        for (const TracedStep &one : asked.steps)
            if (one.head.kind == TRACE_COUNT) {
                std::uint32_t ifindex = 0;
                std::memcpy(&ifindex, one.key.data(), sizeof ifindex);
                predicted.emplace(ifindex, kReasons.at(static_cast<std::size_t>(one.head.answer)).name);
            }
        for (const Counted &one : outcome.counted)
            counted.emplace(one.ifindex, kReasons[one.why].name);
        EXPECT_EQ(predicted, counted) << "what is predicted, and what then happens";
        EXPECT_EQ(asked.verdict, outcome.verdict);
        EXPECT_EQ(asked.frame, outcome.frame);
    }

    using Snapshot = std::map<std::pair<std::uint32_t, int>, count>;

    static std::uint32_t make_veth(const char *name) {
        net::Netlink netlink = require(net::Netlink::open());
        const net::Namespace here = require(net::Namespace::current());
        const std::string other = std::string(name) + "p";
        return require(net::create_veth(netlink, {other, name, kForeignMac, kHostMac, 1500, here})).host.ifindex;
    }

    Snapshot snapshot() const {
        Snapshot all;
        for (const std::uint32_t ifindex : require(tables().counters.keys())) {
            const counters sum = require(sum_of(tables().counters, ifindex));
            for (int i = 0; i < COUNTER_REASONS; ++i)
                all[{ifindex, i}] = sum.by_reason[i];
        }
        return all;
    }

    static std::vector<Counted> moved(const Snapshot &before, const Snapshot &after) {
        std::vector<Counted> changes;
        for (const auto &[key, now] : after) {
            const count &then = before.at(key);
            if (now.packets != then.packets || now.bytes != then.bytes)
                changes.push_back(
                    {key.first, static_cast<reason>(key.second), now.packets - then.packets, now.bytes - then.bytes});
        }
        return changes;
    }

    Loaded &loaded_ = Loaded::once();
};

inline int verdict_of(reason why) {
    switch (kReasons[why].kind) {
    case REASON_KIND_DROP:
        return kDropped;
    case REASON_KIND_FAST:
    case REASON_KIND_ANSWER:
    case REASON_KIND_MOVED:
        return kRedirected;
    default:
        return kNext;
    }
}

// The verdict and every counter: one reason, at the receiver too where it goes there directly.
inline void expect_ends_in(const Node &node, const Outcome &outcome, reason why, std::uint32_t on = 0) {
    const std::uint32_t sender = on == 0 ? node.pod.ifindex : on;
    const std::uint32_t receiver = sender == node.pod.ifindex ? node.peer.ifindex : node.pod.ifindex;
    const std::uint64_t length = outcome.frame.size();
    std::vector<Counted> expected{{why == REASON_DROP_UNKNOWN_ENDPOINT ? 0 : sender, why, 1, length}};
    if (why == REASON_SENT_DIRECT)
        expected.push_back({receiver, REASON_RECEIVED_DIRECT, 1, length});
    std::ranges::sort(expected, {}, &Counted::ifindex);
    EXPECT_EQ(outcome.counted, expected);
    EXPECT_EQ(outcome.verdict, verdict_of(why));
}

class PacketTest : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root";
        node_.emplace();
        prepare();
    }
    virtual void prepare() {} // what a test needs beside the node
    Node &node() { return *node_; }
    // Commands in the test's namespace, that must succeed.
    static void shell(const char *commands) { ASSERT_EQ(std::system(commands), 0) << commands; } // NOLINT(cert-env33-c)

  private:
    std::optional<Node> node_;
};

} // namespace podlane::packet
