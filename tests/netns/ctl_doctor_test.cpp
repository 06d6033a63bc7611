// SPDX-License-Identifier: MIT
// podlanectl doctor: finds nothing on a healthy node, and each fault of its table on a node that is broken in just that
// way; looking changes nothing, and --fix repairs what is Podlane's.
#include "tests/netns/doctor.hpp"
#include "tests/netns/doctor_networks.hpp"
#include "tests/netns/doctor_records.hpp"
#include "tests/harness/environment.hpp"

#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace podlane::test {
namespace {

class DoctorFault : public Doctor, public testing::WithParamInterface<Fault> {
  protected:
    // The one finding the fault is to give; null if it is not among them.
    [[nodiscard]] static Json expected_in(const Json &all) {
        for (const Json &one : all)
            if (one.at("check") == GetParam().check &&
                one.at("finding").get<std::string>().find(GetParam().says) != std::string::npos)
                return one;
        return nullptr;
    }
};

// endpoint show judges by the same verifier: so much for an endpoint that the doctor has a finding of.
void expect_shown(const Node &node, bool as_planned) {
    for (const Json &one : node.podlanectl_json("endpoint show --network pods"))
        if (one.at("plan") != "as-planned") {
            EXPECT_FALSE(as_planned) << one.at("plan");
            return;
        }
    EXPECT_TRUE(as_planned) << "endpoint show finds nothing";
}

TEST_P(DoctorFault, IsFoundAndRepaired) {
    GetParam().inflict(*this);
    if (IsSkipped() || HasFatalFailure())
        return;
    const Json all = findings();
    const Json found = expected_in(all);
    ASSERT_TRUE(found.is_object()) << all.dump(1);
    EXPECT_EQ(rc_, GetParam().wrong ? 1 : 0);
    EXPECT_EQ(found.at("severity"), GetParam().wrong ? "wrong" : "notice");
    EXPECT_FALSE(found.at("cause").is_null());
    EXPECT_FALSE(found.at("remedy").is_null());
    EXPECT_EQ(found.at("fixable"), GetParam().fixable);
    if (GetParam().fixable) {
        EXPECT_THAT(found.at("remedy").get<std::string>(),
                    Not(testing::ContainsRegex("^delete the pod's sandbox|podlanectl gc")));
    }
    if (!found.at("pod").is_null())
        expect_shown(node_, false);
    const Json repaired = expected_in(findings("--fix"));
    ASSERT_TRUE(repaired.is_object()) << "looking has repaired it";
    const Json left = findings();
    // A finding without a repair of its own may go with another's.
    EXPECT_EQ(repaired.at("fixed"), expected_in(left).is_null() ? Json(true) : Json(nullptr)) << repaired.dump(1);
    if (GetParam().fixable) {
        EXPECT_TRUE(left.empty()) << left.dump(1);
        if (!found.at("pod").is_null())
            expect_shown(node_, true);
    }
}

std::string name_of(const testing::TestParamInfo<Fault> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, DoctorFault, testing::ValuesIn(kFaults), name_of);
INSTANTIATE_TEST_SUITE_P(OfNetworks, DoctorFault, testing::ValuesIn(kNetworkFaults), name_of);
INSTANTIATE_TEST_SUITE_P(OfRecords, DoctorFault, testing::ValuesIn(kRecordFaults), name_of);

// Whatever is added to the table of checks needs a node that is broken in that way, and a line in the documentation.
TEST(DoctorTable, EachCheckIsTestedAndDocumented) {
    const std::string docs = source_text("docs/PODLANECTL.md");
    // NamesWhatTheKernelHasNot, tests/kernels, coexist_test: that one stays a finding after its repair;
    // lost_lease_test; own_uplink_down_test: it has other consequences, too; doctor_forward_policy_test,
    // doctor_tunnel_test.
    const std::set<std::string_view> elsewhere = {
        "kernel",        "conntrack-lookup", "isolation-refused", "foreign-qdisc",
        "waiting-lease", "uplink-down",      "forward-policy",    "tunnel"};
    std::size_t checks = 0;
    for (const auto &table : {ctl::doctor::host_checks(), ctl::doctor::network_checks(), ctl::doctor::foreign_checks(),
                              ctl::doctor::record_checks(), ctl::doctor::fast_path_checks(),
                              ctl::doctor::state_checks(), ctl::doctor::endpoint_checks()})
        for (const ctl::doctor::Check &check : table) {
            const std::string name(check.name);
            const auto is_this = [&](const Fault &fault) { return name == fault.check; };
            EXPECT_TRUE(elsewhere.contains(name) || std::ranges::any_of(kFaults, is_this) ||
                        std::ranges::any_of(kNetworkFaults, is_this) || std::ranges::any_of(kRecordFaults, is_this))
                << name << " has no test";
            EXPECT_THAT(docs, testing::AnyOf(HasSubstr("\n| `" + name + "`"), HasSubstr(", `" + name + "`")));
            ++checks;
        }
    EXPECT_GT(checks, 25U);
}

class DoctorHealthy : public AttachedTest {};
INSTANTIATE_TEST_SUITE_P(Attach, DoctorHealthy, both_ways_to_attach(), way_to_attach);

// Also behind another main plugin, whose interface is not ours to judge.
TEST_P(DoctorHealthy, FindsNothing) {
    const Pod own = make(attach_key());
    Chain chain(node_, {{{"type", "ptp"}, {"ipam", node_.ipam()}}, node_.config({{"ipam", nullptr}})});
    const auto adopted = node_.container();
    ASSERT_EQ(chain.add(*adopted).rc, 0);
    EXPECT_THAT(run(node_.ns(), ctl_argv(node_.bpffs(), "doctor")), prints(0, {"checks, nothing found\n"}));
    EXPECT_EQ(chain.del(*adopted).rc, 0);
    ASSERT_EQ(del(*own.container, attach_key()).rc, 0);
    EXPECT_THAT(run(node_.ns(), ctl_argv(node_.bpffs(), "doctor")).out, HasSubstr("nothing found"));
}

// Masqueraded by another agent, or announced to routers by a daemon; with a route to the other nodes.
TEST_F(Doctor, FindsNothingInANetworkThatWorks) {
    configure(*this, {{"ipMasq", true}});
    EXPECT_EQ(findings().size(), 0U);
    configure(*this, {{"uplink", "up0"}}, "203.0.113.0/25");
    EXPECT_EQ(findings().size(), 0U);
    const Json without = {{"clusterCIDRs", {"198.18.64.0/18"}}};
    configure(*this, without);
    on_node("ip route add 198.18.65.0/24 via 203.0.113.1 proto bird");
    EXPECT_EQ(findings().size(), 0U);
    on_node("ip route replace 198.18.65.0/24 via 203.0.113.1");
    EXPECT_EQ(findings().size(), 1U);
    on_node("iptables -w -t nat -A POSTROUTING -s 198.18.64.0/18 -j MASQUERADE");
    EXPECT_EQ(findings().size(), 0U);
}

// The route that the kernel takes decides: whichever is the longest, and whatever its kind.
TEST_F(Doctor, ComparesRoutesWithTheNodesOfTheCluster) {
    const auto found = [&] {
        std::vector<std::string> all;
        for (const Json &one : findings())
            all.push_back(one.at("check").get<std::string>() + ": " + one.at("finding").get<std::string>());
        return all;
    };
    list_nodes(*this,
               {{"b", {"198.18.65.0/24", "2001:db8:10:65::/64"}}, {"new", {}}, {"c\033[2J", {"198.18.66.0/24"}}});
    on_node("ip route add 198.18.65.0/24 via 203.0.113.1 proto bird");
    on_node("ip -6 route add unreachable 2001:db8:10::/48");
    EXPECT_THAT(found(), testing::UnorderedElementsAre(
                             "node-route: no route leads to 2001:db8:10:65::/64 of node b",
                             "node-route: no route but the default one leads to 198.18.66.0/24 of node c?[2J"));
    on_node("ip -6 route add 2001:db8:10:65::/64 dev up0");
    on_node("ip route add 198.18.64.0/18 via 203.0.113.1");
    EXPECT_THAT(found(), IsEmpty());
    on_node("ip route add blackhole 198.18.66.0/24"); // as of a daemon that announces it
    EXPECT_THAT(found(), testing::ElementsAre("node-route: no route leads to 198.18.66.0/24 of node c?[2J"));
}

TEST_F(Doctor, RefusesWhatIsNoListOfNodes) {
    const std::string file = node_.dir() + "/nodes";
    const auto refuses = [&](const std::string &text, const std::string &says) {
        std::ofstream(file) << text;
        EXPECT_THAT(ctl("doctor --nodes " + file), complains(1, {file, says, "hint: `kubectl get nodes -o json`"}))
            << text;
    };
    refuses("", "is empty");
    refuses("{}", "items is missing, expected a list");
    refuses(R"({"items": [{"metadata": {"name": "b"}, "spec": {"podCIDR": "everything"}}]})",
            "node b: spec.podCIDR is \"everything\"");
    refuses(R"({"items": [{"spec": {"podCIDRs": [7]}}]})", "spec.podCIDRs[0] is 7");
    EXPECT_THAT(ctl("doctor --nodes /dev/zero"), complains(1, {"/dev/zero: it is not a regular file", "hint: "}));
    EXPECT_THAT(ctl("repair --nodes " + file), complains(2, {"repair has no option --nodes"}));
    std::ofstream(file) << R"({"items": [null, 7, {}, {"status": {"addresses": [null, 7, {"address": 7}]}}]})";
    nodes_ = " --nodes " + file;
    EXPECT_EQ(findings().size(), 0U);
}

// The kernel dumps the hash tables of u32 as filters, too; and those of the qdisc `ingress` also as filters of egress.
TEST_F(Doctor, ListsAForeignU32FilterOnce) {
    const auto expect_once = [&](const std::string &qdisc) {
        on_node("tc qdisc replace dev " + host() + " " + qdisc);
        on_node("tc filter add dev " + host() + " ingress prio 20 protocol all u32 match u32 0 0");
        const Json all = findings();
        EXPECT_EQ(std::ranges::count_if(all, [](const Json &one) { return one.at("check") == "other-programs"; }), 1)
            << all.dump(1);
    };
    expect_once("clsact");
    if (kernel_can_tcx()) { // else clsact is Podlane's
        on_node("tc qdisc del dev " + host() + " clsact");
        expect_once("ingress"); // as the bandwidth plugin has it
    }
}

// Endpoints are examined in groups. Two interfaces of a container share a namespace.
TEST_F(Doctor, FindsTheBrokenOnesAmongMany) {
    constexpr std::size_t kMoreThanAGroup = 65;
    while (kept_.size() < kMoreThanAGroup)
        keep({{"ipam", {{"ranges", {{{{"subnet", "198.18.40.0/24"}}}}}}}});
    EXPECT_EQ(findings().size(), 0U);
    const Pod &first = kept_.front(), &last = kept_.back();
    first.container->run("ip neigh del 169.254.1.1 dev eth0");
    last.container->run("ip neigh del 169.254.1.1 dev eth0");
    on_node("ip neigh del " + to_string(first.v4) + " dev " + first.host_ifname);
    std::set<std::string> found;
    for (const Json &one : findings())
        found.insert(one.at("host_interface").get<std::string>() + ": " + one.at("check").get<std::string>());
    EXPECT_THAT(found, testing::UnorderedElementsAre(first.host_ifname + ": pod-neighbour",
                                                     first.host_ifname + ": host-neighbour",
                                                     last.host_ifname + ": pod-neighbour"));
}

// Older versions of host-local write the container alone; of a pod that is gone nobody uses the address.
TEST_F(Doctor, KnowsALeaseFileByItsContainer) {
    std::ofstream(lease_file(*this)) << made_.container->id();
    const Pod dead = make(Json::object());
    lose_namespace(dead);
    ASSERT_TRUE(fs::remove(node_.leases() + "/pods/" + dead.text4()));
    EXPECT_TRUE(find(findings(), "check", "lease-file").is_null());
    ASSERT_TRUE(fs::remove(lease_file(*this)));
    const Json found = find(findings(), "check", "lease-file");
    ASSERT_TRUE(found.is_object());
    const std::string remedy = found.at("remedy");
    const auto command = remedy.find("printf");
    ASSERT_NE(command, std::string::npos) << remedy;
    (void)must_run(node_.ns(), {"sh", "-c", remedy.substr(command)});
    EXPECT_TRUE(find(findings(), "check", "lease-file").is_null());
    EXPECT_THAT(del(*made_.container), succeeds());
    EXPECT_FALSE(fs::exists(lease_file(*this))) << "host-local knows it";
}

TEST_F(Doctor, LooksAtANodeWithoutPodlane) {
    EXPECT_THAT(run(node_.ns(), ctl_argv("/sys/fs/bpf/podlane-never", "doctor")), prints(0, {"nothing found"}));
}

TEST_F(Doctor, SaysHowToMountABpffs) {
    for (const std::string mount : {"/tmp", "/tmp/elsewhere"})
        EXPECT_THAT(run(node_.ns(), ctl_argv(mount + "/podlane", "doctor")),
                    prints(1, {"no bpffs is mounted at " + mount + "/podlane", "mount -t bpf bpf " + mount + ")"}));
}

// The checks that need no pins go on.
TEST_F(Doctor, GoesOnBesideAPinThatItCannotOpen) {
    const auto expect_found = [&](const std::string &says, const std::string &remedy) {
        const Json all = findings();
        const Json loaded = find(all, "check", "loaded");
        ASSERT_TRUE(loaded.is_object()) << all.dump(1);
        EXPECT_EQ(rc_, 1);
        EXPECT_THAT(loaded.at("finding").get<std::string>(), HasSubstr(says));
        EXPECT_THAT(loaded.at("remedy").get<std::string>(), HasSubstr(remedy));
        EXPECT_TRUE(find(all, "check", "bpffs").is_object()) << all.dump(1);
    };
    ASSERT_EQ(chmod(node_.bpffs().c_str(), 0755), 0);
    const std::string pin = pin_path(node_.bpffs(), PODLANE_MAP_SENDERS), aside = node_.bpffs() + "/aside";
    fs::rename(pin, aside);
    fs::create_directory(pin);
    expect_found(PODLANE_MAP_SENDERS " is not Podlane's", "podlanectl repair");
    EXPECT_THAT(ctl("map dump senders"), complains(1, {PODLANE_MAP_SENDERS, "hint: it is no BPF object"}));
    EXPECT_THAT(ctl("doctor web-9"), complains(1, {"no endpoint matches web-9"}));
    fs::remove(pin);
    fs::rename(aside, pin);
}

TEST_F(Doctor, GoesOnIfTheBpffsIsReadOnly) {
    const std::string disk = node_.dir() + "/bpf", root = disk + "/podlane";
    fs::create_directory(disk);
    ASSERT_EQ(mount("bpf", disk.c_str(), "bpf", 0, "mode=0700"), 0);
    {
        const Pod made = make({{"bpffs", root}});
        ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
        const Output output = run(node_.ns(), ctl_argv(root, "doctor --json"));
        const Json loaded = find(Json::parse(output.out, nullptr, false), "check", "loaded");
        EXPECT_EQ(output.rc, 1);
        EXPECT_THAT(loaded.value("finding", output.err), HasSubstr("Read-only file system"));
        EXPECT_THAT(loaded.value("remedy", ""), HasSubstr("mount -o remount,rw"));
        ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, nullptr), 0);
        EXPECT_EQ(node_.cni("DEL", node_.config({{"bpffs", root}}), *made.container).rc, 0);
    }
    EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

// Everything of bpf(2) is refused, as by a kernel that has none of it.
void refuse_bpf() {
    std::array<sock_filter, 4> code = {{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_bpf, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    sock_fprog program{code.size(), code.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(99);
}

// The output of podlanectl there, and its exit code. In a process of its own: libbpf caches what a kernel refused.
std::pair<int, std::string> said_without_bpf(const Node &node, const std::string &bpffs,
                                             const std::vector<std::string_view> &words) {
    const std::string path = node.dir() + "/said";
    const pid_t child = fork();
    if (child == 0) {
        refuse_bpf();
        ctl::World world = ctl::real_world();
        world.bpffs = bpffs;
        world.out = world.err = std::fopen(path.c_str(), "we");
        const int code = ctl::run(words, world);
        std::fclose(world.err);
        _exit(code);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return {WEXITSTATUS(status), read_file(path)};
}

TEST_F(Doctor, MountsABpffs) {
    std::string command;
    for (const std::string &word : ctl_argv("/sys/fs/bpf/podlane-never", "doctor --json"))
        command += "'" + word + "' ";
    const std::string unmount = "while mountpoint -q /sys/fs/bpf; do umount -l /sys/fs/bpf; done; ";
    EXPECT_THAT(run(node_.ns(), {"unshare", "-m", "sh", "-c", unmount + command}), prints(1, {"no bpffs is mounted"}));
    const Output fixed =
        run(node_.ns(), {"unshare", "-m", "sh", "-c", unmount + command + "--fix >/dev/null && " + command});
    EXPECT_EQ(fixed.rc, 0) << fixed.out << fixed.err;
    EXPECT_EQ(fixed.out, "[]\n");
}

// Every other command says so too, and where to ask for more.
TEST_F(Doctor, OtherCommandsSendThere) {
    for (const std::string_view noun :
         {"endpoint", "counter", "program", "history", "network", "path", "source", "uplink"}) {
        const auto [code, text] = said_without_bpf(node_, node_.bpffs(), {noun});
        EXPECT_EQ(code, 1) << noun;
        EXPECT_THAT(text, HasSubstr("\nhint: \"podlanectl doctor\" lists the features this kernel lacks")) << noun;
        EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
    }
}

// Nothing of them is in the kernel but rules.
TEST_F(Doctor, NamesPodsThatDiedAfterTheirMapsWereLost) {
    const std::string runtime = " --bin-dir " + node_.plugins();
    for (const bool all : {true, false}) {
        SCOPED_TRACE(all);
        const Pod made = make({{"ipMasq", true}});
        if (all)
            fs::remove_all(node_.bpffs());
        else
            fs::remove(pin_path(node_.bpffs(), PODLANE_MAP_ENDPOINTS));
        EXPECT_TRUE(find(findings(), "check", "dead").is_null());
        lose_namespace(made);
        const Json found = find(findings(), "check", "dead");
        ASSERT_TRUE(found.is_object());
        EXPECT_THAT(found.at("remedy").get<std::string>(), HasSubstr("podlanectl gc"));
        EXPECT_EQ(ctl("repair").rc, 1);
        EXPECT_THAT(ctl("gc" + runtime), prints(0, {made.container->id().substr(0, 12)}));
        EXPECT_THAT(findings(), testing::IsEmpty());
        EXPECT_THAT(node_.run("nft list ruleset"), Not(HasSubstr(made.text4())));
    }
}

// Root without a right, as in a container: what cannot be seen is not said to be wrong.
TEST_F(Doctor, WithoutARightItSaysWhatItCouldNotSee) {
    for (const std::string missing : {"-net_admin", "-sys_admin,-bpf", "-sys_admin,-bpf,-net_admin,-perfmon",
                                      "-sys_ptrace", "-dac_override,-dac_read_search"}) {
        std::vector<std::string> argv = {"setpriv", "--inh-caps=" + missing, "--bounding-set=" + missing};
        for (const std::string &word : ctl_argv(node_.bpffs(), "doctor --json"))
            argv.push_back(word);
        const Output output = run(node_.ns(), argv);
        const Json all = Json::parse(output.out, nullptr, false);
        if (all.is_discarded()) {
            EXPECT_EQ(output.rc, 1) << missing;
            EXPECT_THAT(output.err, HasSubstr("Operation not permitted\nhint: run as root with CAP_BPF"));
            continue;
        }
        for (const Json &one : all)
            EXPECT_THAT(one.at("finding").get<std::string>(), HasSubstr("cannot be checked: ")) << missing;
    }
}

TEST_F(Doctor, NamesWhatTheKernelHasNot) {
    const auto [code, text] = said_without_bpf(node_, "/sys/fs/bpf/podlane-never", {"doctor", "--json"});
    EXPECT_EQ(code, 1);
    EXPECT_THAT(text, has_all({"\"check\": \"kernel\"", "this kernel lacks the helper bpf_redirect_peer",
                               "boot a newer kernel: Linux 5.10 has it"}));
}

} // namespace
} // namespace podlane::test
