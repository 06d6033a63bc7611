// SPDX-License-Identifier: MIT
// A node as podlanectl doctor finds it, and each way to break it of the doctor's table.
#pragma once

#include "tests/harness/bpf.hpp"
#include "tests/netns/ctl.hpp"

#include "loader/attach.hpp"
#include "loader/object.hpp"
#include "loader/record.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>

namespace podlane::test {

class Doctor : public CtlTest {
  public:
    Doctor() {
        for (const char *link : {"lo", "up0"})
            set_sysctl(node_.ns(), std::string("net.ipv4.conf.") + link + ".rp_filter", "0");
        set_sysctl(node_.ns(), "net.ipv4.conf.all.rp_filter", "0");
    }

    // Faults of the machine are played in a mount namespace of podlanectl's own.
    [[nodiscard]] Json findings(const std::string &options = "") {
        std::string command;
        const std::string runtime = " --conf-dir " + node_.dir() + " --bin-dir " + node_.plugins() + nodes_;
        for (const std::string &word : ctl_argv(node_.bpffs(), "doctor --json " + options + runtime))
            command += "'" + word + "' ";
        const Output output = run(node_.ns(), {"unshare", "-m", "sh", "-c", setup_ + "exec " + command});
        rc_ = output.rc;
        Json json = Json::parse(output.out, nullptr, false);
        EXPECT_FALSE(json.is_discarded()) << output.out << output.err;
        return json;
    }
    // A mount over `path` that reads `text`.
    void play(const std::string &path, const std::string &text) {
        const std::string file = node_.dir() + "/played" + std::to_string(setup_.size());
        std::ofstream(file) << text << "\n";
        ASSERT_EQ(chmod(file.c_str(), 0755), 0);
        setup_ += "mount --bind " + file + " " + path + " && ";
    }
    void attach_foreign(bool tcx) const {
        const Fd program = load_passing_program("agent7");
        const auto inside = require(net::enter(node_.ns()));
        if (tcx)
            attach_tcx(program.get(), made_.ifindex, Hook::ingress);
        else
            attach_filter(program.get(), made_.ifindex, Hook::ingress);
    }
    void replace_pin(const char *name) const {
        const Fd program = load_passing_program(name);
        ASSERT_EQ(unlink(pin_path(node_.bpffs(), name).c_str()), 0);
        ASSERT_EQ(bpf_obj_pin(program.get(), pin_path(node_.bpffs(), name).c_str()), 0);
    }
    [[nodiscard]] const std::string &host() const { return made_.host_ifname; }
    using CtlTest::ctl;
    using CtlTest::lose_namespace;
    using CtlTest::make;
    using CtlTest::node_;
    using CtlTest::on_node;
    using CtlTest::open;
    using CtlTest::record;

    // A further pod, which lives as long as the test.
    const Pod &keep(const Json &keys) {
        kept_.push_back(make(keys));
        return kept_.back();
    }

    std::vector<Pod> kept_;
    Pod made_ = make({{"allowedSources", {"192.0.2.0/24"}}, {"uplinks", {"up*"}}});
    std::string setup_ = "true && ";
    std::string nodes_; // option of that name
    int rc_ = -1;
};

struct Fault {
    const char *name;  // of the test
    const char *check; // the finding's
    const char *says;  // part of it
    bool fixable;
    std::function<void(Doctor &d)> inflict;
    bool wrong = true;
};

inline void PrintTo(const Fault &fault, std::ostream *out) { *out << fault.name; }

// Commands on the node, or behind "pod" in the container.
inline std::function<void(Doctor &)> by(const std::vector<std::string> &commands) {
    return [commands](Doctor &d) {
        for (const std::string &one : commands)
            run_for(d.node_, d.made_, one);
    };
}
// The beginning of the mount namespace of podlanectl.
inline std::function<void(Doctor &)> behind(const std::string &command) {
    return [command](Doctor &d) { d.setup_ += command + " && "; };
}
inline std::function<void(Doctor &)> without_pin(const std::string &name) {
    return [name](Doctor &d) { ASSERT_EQ(unlink(pin_path(d.node_.bpffs(), name).c_str()), 0); };
}
// An entry that no ADD has made.
template <typename Key, typename Value>
std::function<void(Doctor &)> entry(Result<Map<Key, Value>> (*opener)(std::string_view, Access),
                                    const std::type_identity_t<Key> &key,
                                    const std::type_identity_t<Value> &value = {}) {
    return [=](Doctor &d) { require(d.open(opener).update(key, value)); };
}

// Another device of the uplinks' pattern, with programs from the next sync on.
inline void add_uplink(Doctor &d) {
    d.on_node("ip link add up1 type veth peer name up1-peer");
    d.on_node("ip link set up1 up");
}

const std::vector<Fault> kFaults = {
    {"BpffsOpenToOthers", "bpffs", "accessible to users other than root", true,
     [](Doctor &d) { ASSERT_EQ(chmod(d.node_.bpffs().c_str(), 0755), 0); }},
    {"NoBtf", "btf", "/sys/kernel/btf/vmlinux", false, behind("mount -t tmpfs none /sys/kernel/btf")},
    {"NoCgroup", "cgroup", "no cgroup v2", false, behind("umount -l -a -t cgroup2"), false},
    {"JitOff", "jit", "bpf_jit_enable is 0", false,
     [](Doctor &d) { // it is in the first network namespace's /proc only
         d.setup_ += "mount -t tmpfs none /proc/sys/net/core && echo 0 > /proc/sys/net/core/bpf_jit_enable && ";
     }},
    {"Ipv4ForwardingOff", "forwarding", "net.ipv4.ip_forward is 0", true, by({"sysctl -qw net.ipv4.ip_forward=0"})},
    {"Ipv6ForwardingOff", "forwarding", "net.ipv6.conf.all.forwarding is 0", true,
     by({"sysctl -qw net.ipv6.conf.all.forwarding=0"})},
    {"ForwardingOffOnHostVeth", "interface-forwarding", ".forwarding is 0", true,
     by({"sysctl -qw net.ipv4.conf.@host.forwarding=0"})},
    {"Ipv6ForwardingOffOnHostVeth", "interface-forwarding", ".forwarding is 0", true,
     by({"sysctl -qw net.ipv6.conf.@host.forwarding=0"})},
    {"StrictReversePathOfUplinks", "rp-filter", "rp_filter is strict on up", false,
     [](Doctor &d) {
         add_uplink(d);
         (void)d.ctl("uplink sync");
         set_sysctl(d.node_.ns(), "net.ipv4.conf.all.rp_filter", "1");
     }},
    {"StrictReversePath", "rp-filter", "rp_filter is strict on cali", false,
     by({"sysctl -qw net.ipv4.conf.all.rp_filter=1"})},
    {"ConntrackFull", "conntrack", "95 of 100", false,
     [](Doctor &d) {
         d.on_node("nft add table inet t");
         d.on_node("nft add chain inet t c { type filter hook input priority 0 ; }");
         d.on_node("nft add rule inet t c ct state invalid counter");
         d.play("/proc/sys/net/netfilter/nf_conntrack_count", "95");
         d.play("/proc/sys/net/netfilter/nf_conntrack_max", "100");
     }},
    {"RulesOfNft", "forward-rules", "chain np rules (inet) drops", false,
     by({"nft add table inet np", "nft add chain inet np rules { type filter hook forward priority 0 ; }",
         "nft add chain inet np pods", "nft add rule inet np rules jump pods",
         "nft add rule inet np pods ip saddr 198.18.9.9 drop"}),
     false},
    {"RulesOfOlderIptables", "forward-rules", "chain filter FORWARD (iptables) drops", false,
     by({"iptables-legacy -w -P FORWARD DROP"}), false},
    {"RulesByPacket", "packet-rules", "chain shaper police (inet): counter, limit", false,
     by({"nft add table inet shaper", "nft add chain inet shaper police { type filter hook forward priority 0 ; }",
         "nft add rule inet shaper police limit rate over 5/second counter drop"}),
     false},
    {"IpsecPolicies", "ipsec", "the node has 1 IPsec policy", false,
     by({"ip xfrm policy add dir fwd src 192.0.2.99 dst 192.0.2.99 tmpl proto esp mode tunnel"}), false},
    {"NftIsMissing", "forward-rules", "cannot be checked: nft is not installed", false,
     behind("mount -t tmpfs none /usr/sbin"), false},
    {"NftFails", "forward-rules", "cannot be checked: /usr/sbin/nft: no rules today", false,
     [](Doctor &d) { d.play("/usr/sbin/nft", "#!/bin/sh\necho no rules today >&2; exit 1"); }, false},
    {"TrackingRuleGone", "conntrack-off", "table inet podlane-pods", true,
     [](Doctor &d) {
         (void)d.keep({{"firstPacket", "host"}});
         d.on_node("nft flush ruleset");
     }},
    {"ConntrackChecksWindows", "conntrack-settings", "nf_conntrack_tcp_be_liberal is 0", true,
     by({"sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0"})},
    {"PacingLost", "pacing", "pl_pace is not attached", true, without_pin(PODLANE_PIN_PACING)},
    {"PacingUnpinned", "pacing", "the pin of pl_pace is gone", true, without_pin(PODLANE_PROGRAM_PACE)},
    {"ExpeditedRcuLeftOn", "expedited-rcu", "/sys/kernel/rcu_expedited was on", false,
     [](Doctor &d) { // in a file of its own: the kernel's is the whole machine's, and other calls restore it meanwhile
         const std::string file = d.node_.dir() + "/rcu_expedited";
         d.setup_ += "echo 20556 > " + file + " && mount --bind " + file + " /sys/kernel/rcu_expedited && ";
     },
     false},
    {"ForeignProgramOnClsact", "other-programs", "agent7", false, [](Doctor &d) { d.attach_foreign(false); }, false},
    {"ForeignProgramOnTcx", "other-programs", "agent7", false,
     [](Doctor &d) {
         if (!kernel_can_tcx())
             GTEST_SKIP() << "this kernel has no tcx";
         d.attach_foreign(true);
     },
     false},
    {"MapPinGone", "loaded", "endpoints_v1", true, without_pin(PODLANE_MAP_ENDPOINTS)},
    {"ProgramPinGone", "loaded", "pl_to_pod", true, without_pin(PODLANE_PROGRAM_TO_POD)},
    {"AllPinsGone", "lost", "has lost its entries", true,
     [](Doctor &d) { std::filesystem::remove_all(d.node_.bpffs()); }},
    {"Uninstalled", "uninstalled", "takes the slow path since an uninstall", true,
     [](Doctor &d) {
         const std::string runtime = " --conf-dir " + d.node_.dir() + " --bin-dir " + d.node_.dir();
         ASSERT_EQ(d.ctl("uninstall" + runtime).rc, 0);
     },
     false},
    {"PinsAndRecordsGone", "unknown", "is neither in the maps nor on disk", false,
     [](Doctor &d) {
         fs::remove_all(d.node_.bpffs());
         // Also those of the nodes before, whose namespaces' numbers are used again.
         for (const auto &one : fs::directory_iterator(kStateDirectory))
             fs::remove_all(one.path());
     }},
    {"RecordGone", "record", "is gone, or cannot be read", false,
     [](Doctor &d) { fs::remove_all(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory()); }, false},
    {"MapNearlyFull", "map-full", "uplinks_v2 is nearly full", false,
     [](Doctor &d) {
         const auto uplinks = d.open(&open_uplinks);
         for (std::uint32_t ifindex = 100000; ifindex < 100250; ++ifindex)
             require(uplinks.update(ifindex, {}));
     }},
    {"MapFull", "map-full", "uplinks_v2 is full: 256 of 256", false,
     [](Doctor &d) {
         const auto uplinks = d.open(&open_uplinks);
         for (std::uint32_t ifindex = 100000; uplinks.update(ifindex, {}); ++ifindex) {
         }
     }},
    {"MapOfAnotherVersion", "map-version", "endpoints_v9", false,
     [](Doctor &d) {
         const Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "test", 4, 4, 1, nullptr));
         ASSERT_EQ(bpf_obj_pin(map.get(), pin_path(d.node_.bpffs(), "endpoints_v9").c_str()), 0);
     }},
    {"ProgramOfAnotherVersion", "program-version", "pl_from_uplink has tag", false,
     [](Doctor &d) { d.replace_pin(PODLANE_PROGRAM_FROM_UPLINK); }},
    {"PinOfSomethingElse", "pins", "pl_gone is not a pin", true,
     [](Doctor &d) {
         const Fd program = load_passing_program("pl_gone");
         ASSERT_EQ(bpf_obj_pin(program.get(), pin_path(d.node_.bpffs(), "pl_gone").c_str()), 0);
     }},
    {"LeftWhileLoading", "pins", "/loading-1a2b3c was left", true,
     [](Doctor &d) { ASSERT_EQ(mkdir((d.node_.bpffs() + "/loading-1a2b3c").c_str(), 0700), 0); }},
    {"UplinkProgramsGone", "uplink", "the programs on uplink up0", true,
     [](Doctor &d) {
         const auto inside = require(net::enter(d.node_.ns()));
         for (const Hook hook : {Hook::ingress, Hook::egress})
             ASSERT_TRUE(require(detach(if_nametoindex("up0"), hook)));
     }},
    {"UplinkGone", "uplink", "is gone", true, by({"ip link del up0"})},
    {"UplinkNew", "uplink-new", "up1 should be an uplink", true, &add_uplink},
    {"InterfaceOfNobody", "orphan", "interfaces_v1 has an entry of interface 424242", true,
     entry(&open_interfaces, 424242)},
    {"AddressOfNobody", "orphan", "addresses_v1 has an entry of interface 424242", true,
     [](Doctor &d) {
         address value{};
         value.ifindex = 424242;
         require(d.open(&open_addresses).update({1, require(parse_ip("198.18.9.77"))}, value));
     }},
    {"CountersOfNobody", "orphan", "counters_v3 has an entry of interface 424242", true,
     [](Doctor &d) { require(require(open_counters(d.node_.bpffs(), Access::read_write)).update(424242, counter_shares{})); }},
    {"LimitsOfNobody", "orphan", "bandwidths_v1 has an entry of interface 424242", true,
     entry(&open_bandwidths, 424242)},
    {"KeptPathsOfNobody", "orphan", "kept_paths_v1 has an entry of interface 424242", true,
     entry(&open_kept_paths, 424242)},
    {"LimitStateOfNobody", "orphan", "limit_state_v5 has an entry of interface 424242", true,
     entry(&open_limit_states, {424242, LIMIT_EGRESS})},
    {"ExemptPrefixOfNobody", "orphan", "exempt_v1 has an entry of interface 424242", true,
     entry(&open_exempts, make_exempt_key(424242, LIMIT_EGRESS, prefix("192.0.2.0/24")), 1)},
    {"SenderOfNobody", "orphan", "senders_v1 has an entry of interface 424242", true,
     entry(&open_senders, {7, ip("198.18.9.77")}, 424242)},
    {"SourceOfNobody", "orphan", "allowed_srcs_v1 has an entry of interface 424242", true,
     entry(&open_allowed_sources, make_allowed_source_key(424242, prefix("192.0.2.0/24")), 1)},
    {"SourceRouteOfNobody", "orphan", "source_route_v1 has an entry of interface 424242", true,
     entry(&open_source_routes, {424242, ip("198.18.9.77")})},
    {"HostVethGone", "link", "is gone", false, by({"ip link del @host"})},
    {"HostVethDown", "link", "is down", true, by({"ip link set @host down"})},
    {"HostMacChanged", "host-mac", "has MAC 02:00:00:00:00:99", true,
     by({"ip link set @host address 02:00:00:00:00:99"})},
    {"PodLinkGone", "pod-link", "eth0 is gone", false,
     by({"pod ip link set eth0 down", "pod ip link set eth0 name other"})},
    {"PodLinkDown", "pod-link", "eth0 in the container is down", true,
     by({"pod ip link set eth0 down"})}, // and the kernel takes its routes away
    {"PodMacChanged", "pod-link", "02:00:00:00:00:99", true,
     by({"pod sysctl -qw net.ipv4.conf.eth0.arp_notify=0 net.ipv6.conf.eth0.ndisc_notify=0", // its kernel is silent
         "pod ip link set eth0 address 02:00:00:00:00:99"})},
    {"PodAddressGone", "pod-address", "2001:db8:9:", true, by({"pod ip addr del @v6/128 dev eth0"})},
    {"PodNeighbourGone", "pod-neighbour", "169.254.1.1 is gone", true, by({"pod ip neigh del 169.254.1.1 dev eth0"})},
    {"PodGatewayRouteGone", "pod-route", "the route to the gateway 169.254.1.1", true,
     by({"pod ip route del 169.254.1.1"})},
    {"PodDefaultRouteGone", "pod-route", "no IPv6 route leaves", true, by({"pod ip -6 route del default"})},
    {"HostNeighbourGone", "host-neighbour", "is gone", true, by({"ip neigh del @v4 dev @host"})},
    {"HostNeighbourWrong", "host-neighbour", "has MAC 02:00:00:00:00:99", true,
     by({"ip neigh replace @v6 lladdr 02:00:00:00:00:99 nud permanent dev @host"})},
    {"HostRouteGone", "host-route", "is gone", true, by({"ip route del @v4 dev @host"})},
    {"ForeignRule", "host-rule", "leads packets to", false, by({"ip rule add pref 900 to @v4 prohibit"})},
    {"ProgramGone", "program", "pl_to_pod is gone from egress", true,
     [](Doctor &d) {
         const auto inside = require(net::enter(d.node_.ns()));
         EXPECT_TRUE(require(detach(d.made_.ifindex, Hook::egress)));
     }},
    {"ProgramTwice", "program", "2 programs of Podlane are on ingress", true,
     [](Doctor &d) {
         if (!kernel_can_tcx())
             GTEST_SKIP() << "this kernel has no tcx";
         constexpr auto kTcxIngress = static_cast<bpf_attach_type>(46);
         const Fd program = load_passing_program(PODLANE_PROGRAM_FROM_POD);
         const auto inside = require(net::enter(d.node_.ns()));
         ASSERT_EQ(bpf_prog_attach(program.get(), static_cast<int>(d.made_.ifindex), kTcxIngress, 0), 0);
     }},
    {"ProgramOfAnother", "program", "is not the pinned one", true,
     [](Doctor &d) {
         const Fd program = load_passing_program("pl_old");
         const auto inside = require(net::enter(d.node_.ns()));
         require(attach(d.made_.ifindex, Hook::ingress, HookKind::clsact, program.get()));
     }},
    {"InterfaceEntryGone", "interface-entry", "interfaces_v1 is gone", true,
     [](Doctor &d) { (void)require(d.open(&open_interfaces).remove(d.made_.ifindex)); }},
    {"InterfaceEntryWrong", "interface-entry", "interfaces_v1 is wrong", true,
     [](Doctor &d) {
         auto value = *require(d.open(&open_interfaces).find(d.made_.ifindex));
         value.flags ^= INTERFACE_ANTI_SPOOF;
         require(d.open(&open_interfaces).update(d.made_.ifindex, value));
     }},
    {"CountersGone", "interface-entry", "counters_v3 is gone", true,
     [](Doctor &d) {
         (void)require(require(open_counters(d.node_.bpffs(), Access::read_write)).remove(d.made_.ifindex));
     }},
    {"AddressEntryGone", "address-entry", "addresses_v1 is gone", true,
     [](Doctor &d) {
         (void)require(d.open(&open_addresses).remove({network_id("pods"), d.made_.v4}));
     }},
    {"AddressEntryOfNobodyElse", "address-entry", "is another interface's", true,
     [](Doctor &d) {
         address value{};
         value.ifindex = 1; // lo, which is there
         require(d.open(&open_addresses).update({network_id("pods"), d.made_.v4}, value));
     }},
    {"AddressEntryWrong", "address-entry", "in addresses_v1 is wrong", true,
     [](Doctor &d) {
         const address_key key{network_id("pods"), d.made_.v6};
         address value = *require(d.open(&open_addresses).find(key));
         value.mtu = 9000;
         require(d.open(&open_addresses).update(key, value));
     }},
    {"WayOutGone", "asked-entry", "the egress route of", true,
     [](Doctor &d) {
         const Pod &own_route = d.keep({{"uplink", "up0"}});
         (void)require(d.open(&open_source_routes).remove({own_route.ifindex, own_route.v4}));
     }},
    {"KeptPathsGone", "plan", "kept_paths_v1 is gone", true,
     [](Doctor &d) {
         const Pod &own_route = d.keep({{"uplink", "up0"}});
         (void)require(d.open(&open_kept_paths).remove(own_route.ifindex));
     }},
    {"OwnAddressRuleGone", "plan", "routing rules by which the programs know the node's own addresses", true,
     [](Doctor &d) {
         (void)d.keep({{"uplink", "up0"}});
         d.node_.run("ip -6 rule del pref 1347158016");
     }},
    {"OwnAddressRouteGone", "plan", "routing rules by which the programs know the node's own addresses", true,
     [](Doctor &d) {
         (void)d.keep({{"uplink", "up0"}});
         d.node_.run("ip route flush table 1347158016");
     }},
    {"AllowedSourceGone", "asked-entry", "0 of 1 allowed sources", true,
     [](Doctor &d) {
         (void)require(d.open(&open_allowed_sources)
                           .remove(make_allowed_source_key(d.made_.ifindex, require(parse_prefix("192.0.2.0/24")))));
     }},
    {"PodRouteByAnotherGateway", "plan", "leads to 198.18.9.200", true,
     by({"pod ip route replace default via 198.18.9.200 dev eth0 onlink"})},
    {"LimitStateGone", "plan", "limit_state_v5 is gone", true,
     [](Doctor &d) {
         const Pod &limited =
             d.keep({{"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}});
         (void)require(d.open(&open_limit_states).remove({limited.ifindex, LIMIT_INGRESS}));
     }},
    {"LimitGroupWithoutPods", "limit-group", "limit group number 2147483655 has no pod", true,
     [](Doctor &d) { require(d.open(&open_limit_groups).update(LIMIT_GROUP | 7, limit_group{})); }, false},
    {"Ipv6OffOnHostVeth", "host-ipv6", "IPv6 is off on the host-side veth", true,
     by({"sysctl -qw net.ipv6.conf.@host.disable_ipv6=1"})},
    {"MasqueradeGone", "plan", "that masquerade", true,
     [](Doctor &d) {
         (void)d.keep({{"ipMasq", true}});
         d.on_node("nft flush ruleset");
     }},
    {"MasqueradedAddressGone", "plan", "that masquerade", true,
     [](Doctor &d) {
         const Pod &made = d.keep({{"ipMasq", true}});
         d.on_node("nft delete element inet podlane-pods pods4 {" + made.text4() + "}");
     }},
    {"LimitQdiscGone", "plan", "the qdisc of the limit is gone", true,
     [](Doctor &d) {
         const Pod &limited =
             d.keep({{"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}});
         if ((d.record(limited).flags & INTERFACE_LIMIT_EDT) == 0)
             GTEST_SKIP() << "this kernel has neither fq nor htb";
         d.on_node("tc qdisc del dev " + limited.host_ifname + " root");
     }},
};

} // namespace podlane::test
