// SPDX-License-Identifier: MIT
// Programs on the hooks: exactly one of Podlane on each, by tcx and by clsact, beside those of others, whatever was
// there.
#include "tests/harness/bpf.hpp"
#include "tests/netns/ctl.hpp"

#include "loader/object.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

namespace podlane::test {
namespace {

class AttachTest : public AttachedTest {
  protected:
    void put_foreign(std::uint32_t ifindex, const char *name = "foreign") const {
        const Fd program = load_passing_program(name);
        const auto inside = require(net::enter(node_.ns()));
        for (const Hook hook : {Hook::ingress, Hook::egress})
            if (kind() == HookKind::tcx)
                attach_tcx(program.get(), ifindex, hook);
            else
                attach_filter(program.get(), ifindex, hook);
    }
    // Names of all programs on the hook, whosever.
    [[nodiscard]] std::vector<std::string> all_on(const Pod &made, Hook hook) const {
        std::vector<std::string> names;
        const auto inside = require(net::enter(node_.ns()));
        if (kernel_can_tcx()) {
            std::array<__u32, 64> ids{};
            __u32 count = ids.size();
            if (bpf_prog_query(static_cast<int>(made.ifindex), tcx_type(hook), 0, nullptr, ids.data(), &count) == 0)
                for (__u32 i = 0; i < count; ++i)
                    names.push_back(require(program_facts(Fd(bpf_prog_get_fd_by_id(ids.at(i))).get())).name);
        }
        const std::string side = hook == Hook::ingress ? "ingress" : "egress";
        const std::string filters = run(node_.ns(), words("tc filter show dev " + made.host_ifname + " " + side)).out;
        for (std::size_t at = 0; (at = filters.find(" name ", at)) != std::string::npos; ++at)
            names.push_back(filters.substr(at + 6, filters.find_first_of(" \n", at + 6) - at - 6));
        std::ranges::sort(names);
        return names;
    }
    void expect_ours_once(const Pod &made) const {
        EXPECT_EQ(programs(made.ifindex, Hook::ingress).size(), 1U);
        EXPECT_EQ(programs(made.ifindex, Hook::egress).size(), 1U);
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : programs(made.ifindex, hook))
                EXPECT_EQ(one.kind, kind());
    }
    // Podlane after ptp, with this test's way to attach.
    [[nodiscard]] Chain after_ptp() const {
        Json ipam = node_.ipam();
        ipam["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        Json podlane = {{"type", "podlane"}, {"bpffs", node_.bpffs()}, {"firstPacket", "direct"}};
        podlane.update(attach_key());
        return {node_, {{{"type", "ptp"}, {"ipam", ipam}}, podlane}};
    }
    [[nodiscard]] Json add_ptp(const Json &config, const Container &container) const {
        return succeeded(node_.cni("ADD", config, container)).json;
    }
};
INSTANTIATE_TEST_SUITE_P(Attach, AttachTest, both_ways_to_attach(), way_to_attach);

TEST_P(AttachTest, AttachesAsConfigured) {
    const Pod made = make(attach_key());
    expect_ours_once(made);
    EXPECT_EQ(record(made).attach, kind() == HookKind::tcx ? ENDPOINT_TCX : ENDPOINT_CLSACT);
    EXPECT_EQ(all_on(made, Hook::ingress), std::vector<std::string>{"pl_from_pod"});
    EXPECT_EQ(all_on(made, Hook::egress), std::vector<std::string>{"pl_to_pod"});
    const Pod other = make(attach_key());
    EXPECT_TRUE(ping(made.container->ns(), other.text4()));
    EXPECT_TRUE(ping(made.container->ns(), other.text6()));
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
}

TEST_P(AttachTest, RepeatedItLeavesExactlyOne) {
    const Pod made = make(attach_key());
    const auto inside = require(net::enter(node_.ns()));
    for (int i = 0; i < 3; ++i) {
        const Fd program = require(open_program(node_.bpffs(), PODLANE_PROGRAM_FROM_POD));
        require(attach(made.ifindex, Hook::ingress, kind(), program.get()));
        EXPECT_EQ(require(attached(made.ifindex, Hook::ingress)).size(), 1U);
    }
}

TEST_P(AttachTest, TakesOffWhateverElseIsOurs) {
    const Pod made = make(attach_key());
    const Fd program = require(open_program(node_.bpffs(), PODLANE_PROGRAM_FROM_POD));
    const auto inside = require(net::enter(node_.ns()));
    for (int i = 0; i < 2 && kernel_can_tcx(); ++i) {
        const Fd twin = load_passing_program("pl_from_pod");
        attach_tcx(twin.get(), made.ifindex, Hook::ingress);
    }
    const HookKind other = kind() == HookKind::tcx ? HookKind::clsact : HookKind::tcx;
    for (const HookKind now : {kind(), other, kind()}) {
        if (now == HookKind::tcx && !kernel_can_tcx())
            continue;
        require(attach(made.ifindex, Hook::ingress, now, program.get()));
        const auto ours = require(attached(made.ifindex, Hook::ingress));
        ASSERT_EQ(ours.size(), 1U);
        EXPECT_EQ(ours[0].kind, now);
        EXPECT_EQ(ours[0].program_id, require(program_facts(program.get())).id);
    }
}

// Left by an earlier life of the node: the pins went, the program stayed on the hook.
TEST_P(AttachTest, ReplacesALeftoverOfPodlane) {
    Chain chain = after_ptp();
    auto container = node_.container();
    const Reply first = succeeded(chain.add(*container));
    std::filesystem::remove_all(node_.bpffs());
    ASSERT_THAT(node_.cni("ADD", chain.config(1, first.json), *container), succeeds());
    const Pod made = look_at(container, first.json);
    expect_ours_once(made);
    EXPECT_EQ(node_.cni("CHECK", chain.config(1, first.json), *container).rc, 0);
    EXPECT_EQ(chain.del(*container).rc, 0);
}

TEST_P(AttachTest, TheOtherKindOfHookIsDetached) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has one way";
    Chain chain = after_ptp();
    auto container = node_.container();
    const Reply first = succeeded(chain.add(*container));
    Json other = chain.config(1, first.json);
    other["attach"] = GetParam() == "tcx" ? "clsact" : "tcx";
    ASSERT_EQ(node_.cni("DEL", other, *container).rc, 0);
    const Pod made = look_at(container, first.json);
    EXPECT_TRUE(all_on(made, Hook::ingress).empty());
    ASSERT_EQ(node_.cni("ADD", other, *container).rc, 0);
    EXPECT_EQ(all_on(made, Hook::ingress), std::vector<std::string>{"pl_from_pod"});
    EXPECT_EQ(chain.del(*container).rc, 0);
}

TEST_P(AttachTest, ProgramsOfOthersStayOnAnAdoptedInterface) {
    Chain chain = after_ptp();
    auto container = node_.container();
    const Json ptp = chain.config(0, nullptr);
    const Json prev = add_ptp(ptp, *container);
    const Pod made = look_at(container, prev);
    put_foreign(made.ifindex);
    const Json config = chain.config(1, prev);
    ASSERT_EQ(node_.cni("ADD", config, *container).rc, 0);
    EXPECT_EQ(all_on(made, Hook::ingress), (std::vector<std::string>{"foreign", "pl_from_pod"}));
    EXPECT_EQ(all_on(made, Hook::egress), (std::vector<std::string>{"foreign", "pl_to_pod"}));
    EXPECT_TRUE(ping(container->ns(), "203.0.113.2"));
    EXPECT_EQ(node_.cni("CHECK", config, *container).rc, 0);
    ASSERT_EQ(node_.cni("DEL", config, *container).rc, 0);
    EXPECT_EQ(all_on(made, Hook::ingress), std::vector<std::string>{"foreign"});
    EXPECT_EQ(all_on(made, Hook::egress), std::vector<std::string>{"foreign"});
    EXPECT_EQ(host_link(made).at("operstate"), "DOWN");
    EXPECT_EQ(node_.cni("DEL", ptp, *container).rc, 0);
}

TEST_P(AttachTest, ProgramsOfOthersThatCameLaterStay) {
    const Pod made = make(attach_key());
    put_foreign(made.ifindex);
    EXPECT_EQ(check(made, attach_key()).rc, 0) << check(made, attach_key());
    EXPECT_EQ(all_on(made, Hook::ingress), (std::vector<std::string>{"foreign", "pl_from_pod"}));
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.2"));
    EXPECT_EQ(del(*made.container, attach_key()).rc, 0);
}

// A qdisc of another agent at the root is neither ours to replace nor in the way.
TEST_P(AttachTest, ARootQdiscOfOthersStays) {
    Chain chain = after_ptp();
    auto container = node_.container();
    const Json ptp = chain.config(0, nullptr);
    const Json prev = add_ptp(ptp, *container);
    const Pod made = look_at(container, prev);
    const Output put =
        run(node_.ns(), words("tc qdisc add dev " + made.host_ifname + " root handle 77: pfifo limit 99"));
    if (put.rc != 0)
        GTEST_SKIP() << "this kernel has no pfifo: " << put.err;
    const Json config = chain.config(1, prev);
    ASSERT_EQ(node_.cni("ADD", config, *container).rc, 0);
    EXPECT_THAT(node_.run("tc qdisc show dev " + made.host_ifname), HasSubstr("pfifo 77:"));
    ASSERT_EQ(node_.cni("DEL", config, *container).rc, 0);
    EXPECT_THAT(node_.run("tc qdisc show dev " + made.host_ifname), HasSubstr("pfifo 77:"));
    EXPECT_EQ(node_.cni("DEL", ptp, *container).rc, 0);
}

TEST_P(AttachTest, CheckNamesASecondProgramOfPodlaneAndAnotherOne) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "two programs of Podlane need two ways to attach";
    const Pod made = make(attach_key());
    const Fd twin = load_passing_program("pl_from_pod");
    {
        const auto inside = require(net::enter(node_.ns()));
        attach_tcx(twin.get(), made.ifindex, Hook::ingress);
    }
    EXPECT_THAT(check(made, attach_key()),
                fails_with(105, {"2 programs of Podlane are on ingress of " + made.host_ifname}));
}

// Another program has replaced clsact by a qdisc that runs the filters of both directions on incoming packets.
TEST_F(CtlTest, RepairAttachesNothingToAForeignIngressQdisc) {
    const Pod made = make({{"attach", "clsact"}});
    on_node("tc qdisc del dev " + made.host_ifname + " clsact");
    on_node("tc qdisc add dev " + made.host_ifname + " ingress");
    const std::string remedy = "tc qdisc del dev " + made.host_ifname + " ingress, then podlanectl repair";
    const auto of_programs = [](const Json &all) {
        std::vector<Json> found;
        std::ranges::copy_if(all, std::back_inserter(found),
                             [](const Json &one) { return one.at("check") == "program"; });
        return found;
    };
    for (const char *command : {"doctor", "repair"}) {
        SCOPED_TRACE(command);
        const auto found = of_programs(ctl_json(command));
        EXPECT_EQ(found.size(), 2U);
        for (const Json &one : found) {
            EXPECT_NE(one.at("fixed"), true) << one;
            EXPECT_THAT(one.at("remedy").get<std::string>(), HasSubstr(remedy));
        }
        EXPECT_THAT(programs(made.ifindex, Hook::ingress), testing::IsEmpty());
        EXPECT_THAT(programs(made.ifindex, Hook::egress), testing::IsEmpty());
    }
    on_node("tc qdisc del dev " + made.host_ifname + " ingress");
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_THAT(check(made, {{"attach", "clsact"}}), succeeds());
}

// Podlane knows its filter by handle and priority, and removes no other one.
TEST_F(CtlTest, DoctorNamesASecondFilterWithAProgramOfPodlane) {
    const Pod made = make({{"attach", "clsact"}});
    {
        const Fd program = require(open_program(node_.bpffs(), PODLANE_PROGRAM_FROM_POD));
        const auto inside = require(net::enter(node_.ns()));
        attach_filter(program.get(), made.ifindex, Hook::ingress, 30);
    }
    const std::string filter = "ingress of " + made.host_ifname + " in a second filter, after Podlane's";
    EXPECT_THAT(ctl("doctor"), prints(0, {"pl_from_pod", filter, "tc filter show dev " + made.host_ifname}));
}

} // namespace
} // namespace podlane::test
