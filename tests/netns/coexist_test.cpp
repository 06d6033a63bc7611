// SPDX-License-Identifier: MIT
// Other agents' programs and qdiscs on a host-side veth go on working, and see what the host stack carries. What
// bypasses the host stack bypasses them, but for programs in front of Podlane's: that is the fast path's price.
#include "tests/harness/bpf.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/netns/lab.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

namespace podlane::test {
namespace {

constexpr unsigned kBefore = 1U << 3U; // BPF_F_BEFORE

// A program of another agent's: counts and marks the IP packets it sees, and lets the next one have them.
class Agent {
  public:
    Agent() : map_(bpf_map_create(BPF_MAP_TYPE_ARRAY, "agent", 4, 8, 1, nullptr)) {
        libbpf_set_print(nullptr);
        const bpf_insn load_protocol{BPF_LDX | BPF_MEM | BPF_W, 6, 1, 16, 0}; // __sk_buff.protocol
        const std::array<bpf_insn, 17> program{{
            {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 7},
            {BPF_STX | BPF_MEM | BPF_W, 1, 2, 8, 0}, // __sk_buff.mark
            load_protocol,
            {BPF_JMP | BPF_JEQ | BPF_K, 6, 0, 1, htons(0x0800)},
            {BPF_JMP | BPF_JNE | BPF_K, 6, 0, 10, htons(0x86dd)},
            {BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0},
            {BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0},
            {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4},
            {BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map_.get()},
            {0, 0, 0, 0, 0},
            {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem},
            {BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3, 0},
            {BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1},
            {BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD},
            {BPF_JMP | BPF_JA, 0, 0, 0, 0},
            {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, -1}, // TCX_NEXT, TC_ACT_UNSPEC
            {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
        }};
        program_ = Fd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "agent", "GPL", program.data(), program.size(), nullptr));
        if (!map_ || !program_)
            throw std::runtime_error(std::string("another agent's program: ") + std::strerror(errno));
    }

    void attach_tcx(Lab &lab, const Pod &pod, bool ingress, bool before) {
        const auto on_node = require(net::enter(lab.node().ns()));
        bpf_link_create_opts options{};
        options.sz = sizeof(options);
        options.flags = before ? kBefore : 0;
        link_ = Fd(bpf_link_create(program_.get(), static_cast<int>(pod.ifindex),
                                   tcx_type(ingress ? Hook::ingress : Hook::egress), &options));
        if (!link_)
            throw std::runtime_error(std::string("tcx link: ") + std::strerror(errno));
    }
    void attach_clsact(Lab &lab, const Pod &pod, bool ingress, unsigned priority) {
        const auto on_node = require(net::enter(lab.node().ns()));
        attach_filter(program_.get(), pod.ifindex, ingress ? Hook::ingress : Hook::egress, priority);
    }
    [[nodiscard]] std::uint64_t seen() const {
        const std::uint32_t zero = 0;
        std::uint64_t value = 0;
        bpf_map_lookup_elem(map_.get(), &zero, &value);
        return value;
    }

  private:
    Fd map_;
    Fd program_;
    Fd link_;
};

class Coexist : public LabTest {
  protected:
    // By what the other agents are attached: true is tcx.
    static std::vector<bool> attached_by_tcx() {
        return kernel_can_tcx() ? std::vector{true, false} : std::vector{false};
    }
    // Has another agent's hooks on both directions of `pod`, in front of Podlane's and behind.
    struct Agents {
        Agent in_front;
        Agent behind;
        Agent towards_pod;
    };
    void attach(Agents &agents, const Pod &pod, bool tcx) {
        if (tcx) {
            agents.in_front.attach_tcx(*lab_, pod, true, true);
            agents.behind.attach_tcx(*lab_, pod, true, false);
            agents.towards_pod.attach_tcx(*lab_, pod, false, false);
        } else {
            agents.in_front.attach_clsact(*lab_, pod, true, 1);
            agents.behind.attach_clsact(*lab_, pod, true, 30);
            agents.towards_pod.attach_clsact(*lab_, pod, false, 30);
        }
    }
    // tcx runs ahead of clsact, whoever was first.
    [[nodiscard]] bool in_front_is_in_front(bool tcx) const { return tcx || lab_parameter().attach == "clsact"; }
    [[nodiscard]] bool behind_is_behind(bool tcx) const { return !tcx || lab_parameter().attach == "tcx"; }
    void say(const Pod &from, const ip_addr &to, int times) {
        for (int i = 0; i < times; ++i)
            ASSERT_EQ(ask(from.ns(), Transport::udp, {to, 7}), 0);
    }
    // Datagrams of 1000 bytes, as fast as they go, that arrive.
    std::size_t flood(const Pod &from, const Pod &to, std::size_t count) {
        const Wire wire = to.wire();
        const Fd socket = connected(from.ns(), Transport::udp, {addr(to), 9});
        const Fd sink = open_socket(to.ns(), Transport::udp, ipv4(), {addr(to), 9});
        const Bytes needle = pattern(200);
        const std::string text = std::string(needle.begin(), needle.end()) + std::string(800, 'x');
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_EQ(send_text(socket, text), 0);
        std::size_t arrived = 0;
        while (arrived < count && wire.until([&](const Bytes &frame) { return contains(frame, needle); }, quiet()))
            ++arrived;
        return arrived;
    }
    void limit(const Pod &pod) {
        lab_->node().run("tc qdisc add dev " + pod.host_ifname + " root tbf rate 8kbit burst 3000 limit 4000");
    }
};

TEST_P(Coexist, OtherAgentsSeeWhatTheHostStackCarries) {
    for (const bool tcx : attached_by_tcx()) {
        const Pod a = add_pod();
        const EchoServer on_host(lab_->node().ns(), ipv4(), 7);
        Agents agents;
        attach(agents, a, tcx);
        say(a, node_addr(), 20);
        EXPECT_GE(agents.in_front.seen(), 20U) << (tcx ? "tcx" : "clsact");
        EXPECT_GE(agents.behind.seen(), 20U) << (tcx ? "tcx" : "clsact");
        EXPECT_GE(agents.towards_pod.seen(), 20U) << (tcx ? "tcx" : "clsact");
    }
}

TEST_P(Coexist, FastPathPassesByAgentsBehindOurs) {
    for (const bool tcx : attached_by_tcx()) {
        const Pod a = add_pod();
        const Pod b = add_pod();
        const EchoServer server(b.ns(), ipv4(), 7);
        Agents of_a;
        Agents of_b;
        attach(of_a, a, tcx);
        attach(of_b, b, tcx);
        const auto behind = of_a.behind.seen();
        const auto towards = of_b.towards_pod.seen();
        const auto direct = lab_->count(a, REASON_SENT_DIRECT);
        const std::string iptables = ipv4() ? "iptables -w" : "ip6tables -w";
        b.container->run(iptables + " -t mangle -A PREROUTING -m mark --mark 7/7");
        say(a, addr(b), 20);
        EXPECT_EQ(lab_->count(a, REASON_SENT_DIRECT), direct + 20);
        EXPECT_THAT(b.container->run(iptables + " -t mangle -vS PREROUTING"), HasSubstr("--mark 0x7/0x7 -c 0 0"))
            << "a mark of the node's comes into the pod";
        if (in_front_is_in_front(tcx)) {
            EXPECT_GE(of_a.in_front.seen(), 20U) << (tcx ? "tcx" : "clsact");
        }
        // Talk of the kernels themselves (IPv6) may be among it.
        if (behind_is_behind(tcx)) {
            EXPECT_LT(of_a.behind.seen() - behind, 10U) << (tcx ? "tcx" : "clsact");
        }
        EXPECT_LT(of_b.towards_pod.seen() - towards, 10U) << (tcx ? "tcx" : "clsact");
    }
}

TEST_P(Coexist, DelLeavesOtherAgentsFiltersOfAnAdoptedInterface) {
    const Json ptp = {{"type", "ptp"}, {"ipam", lab_->node().ipam()}};
    const Pod a = lab_->add_pod(std::vector<Json>{ptp, lab_->node().config(with_attach({{"ipam", nullptr}}))});
    Agent agent;
    agent.attach_clsact(*lab_, a, true, 1);
    Chain only_podlane(lab_->node(), {lab_->node().config(with_attach({{"ipam", nullptr}}))});
    ASSERT_THAT(only_podlane.del(*a.container), succeeds());
    EXPECT_NE(lab_->node().run("tc filter show dev " + a.host_ifname + " ingress").find("agent"), std::string::npos);
}

TEST_P(Coexist, ForeignQdiscLimitsTheHostStackOnly) {
    constexpr std::size_t kMany = 100;
    const Pod a = add_pod();
    const Pod b = add_pod();
    const Pod slow_path = add_pod({{"fastPath", "off"}});
    limit(b);
    limit(slow_path);
    EXPECT_LT(flood(a, slow_path, kMany), 20U);
    EXPECT_EQ(flood(a, b, kMany), kMany) << "the fast path passes by the qdisc of the receiver's host-side veth";
}

// The reference `bandwidth` plugin shapes with a qdisc on the host-side veth: it limits what the host stack delivers.
TEST_P(Coexist, BandwidthPluginBehindOursLimitsWithTheFastPathOff) {
    constexpr std::size_t kMany = 100;
    const auto limited = [&](const char *fast_path) {
        return lab_->add_pod(
            std::vector<Json>{lab_->node().config(with_attach({{"fastPath", fast_path}})),
                              {{"type", "bandwidth"}, {"ingressRate", 80000}, {"ingressBurst", 80000}}});
    };
    const Pod a = add_pod();
    const Pod off = limited("off");
    const Pod on = limited("on");
    EXPECT_NE(lab_->node().run("tc qdisc show dev " + off.host_ifname).find("tbf"), std::string::npos);
    EXPECT_LT(flood(a, off, kMany), 40U);
    EXPECT_EQ(flood(a, on, kMany), kMany) << "the fast path passes by the plugin's qdisc";
}

// Its limit is not known at Podlane's ADD: any call after it takes the pod off the fast path, and so does a repair.
TEST_P(Coexist, BandwidthPluginBehindOursTakesThePodOffTheFastPathWithTheNextCall) {
    constexpr std::size_t kMany = 100;
    const auto limited = [&] {
        return lab_->add_pod(
            std::vector<Json>{lab_->node().config(with_attach()),
                              {{"type", "bandwidth"}, {"ingressRate", 80000}, {"ingressBurst", 80000}}});
    };
    const auto found = [&] {
        std::string text;
        for (const Json &one : Json::parse(lab_->node().podlanectl("doctor --json").out))
            if (one.at("check") == "foreign-qdisc")
                text += one.at("finding").get<std::string>() + "\n";
        return text;
    };
    const Pod a = add_pod();
    const Pod first = limited();
    EXPECT_GT(flood(a, first, kMany), kMany / 2); // a busy machine loses some
    EXPECT_THAT(found(), testing::HasSubstr(first.host_ifname + " has the qdisc tbf of another program: packets on"));
    EXPECT_THAT(first.chain->check(*first.container), succeeds());
    EXPECT_LT(flood(a, first, kMany), 40U) << "after CHECK";
    EXPECT_THAT(found(), testing::HasSubstr("the pod's packets take the slow path"));
    EXPECT_THAT(first.chain->check(*first.container), succeeds());
    const Pod second = limited();
    const Pod other = add_pod();
    EXPECT_LT(flood(a, second, kMany), 40U) << "after the ADD of another pod";
    EXPECT_GT(flood(a, other, kMany), kMany / 2);
    const Pod third = limited();
    (void)lab_->node().podlanectl("doctor --fix");
    EXPECT_LT(flood(a, third, kMany), 40U) << "after a repair";
}

INSTANTIATE_TEST_SUITE_P(All, Coexist, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
