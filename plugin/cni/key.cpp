// SPDX-License-Identifier: MIT
#include "plugin/cni/key.hpp"

#include "plugin/cni/attachment.hpp"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/limit_groups.hpp"
#include "plugin/cni/egress_route.hpp"
#include "plugin/cni/ipam_wishes.hpp"
#include "plugin/cni/isolation.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/pod_settings.hpp"
#include "plugin/cni/values.hpp"

#include <array>

namespace podlane::cni {
namespace {

using json::Node;
using enum Key::Place;

// Reads the value as it is into a member.
template <auto Member> Result<void> plain(const Node & /*root*/, const Node &value, Config &into) {
    return json::read(value, into.*Member);
}

// Reads the value into a member by a reader that checks it.
template <auto Member, auto Reader> Result<void> checked(const Node & /*root*/, const Node &value, Config &into) {
    return Reader(value, into.*Member);
}

Result<void> read_log(const Node & /*root*/, const Node &value, Config & /*into*/) {
    TRY(value.must_be_object(R"({"file": "/var/log/podlane.log", "level": "info"})"));
    return check_keys(value, keys_of(log));
}

template <auto Member, auto Reader> Result<void> of_log(const Node & /*root*/, const Node &value, Config &into) {
    return Reader(value, into.log.*Member);
}

Result<void> read_route_list(const Node & /*root*/, const Node &value, Config &into) {
    into.routes = TRY(read_configured_routes(value));
    return {};
}

Result<void> read_mark_and_mask(const Node & /*root*/, const Node &value, Config &into) {
    return read_slow_path_mark(value, into.slow_path_mark, into.slow_path_mask);
}

Result<void> read_limits(const Node &root, const Node & /*value*/, Config &into) {
    into.bandwidth = TRY(read_bandwidth(root, into.pod_may[static_cast<std::size_t>(PodSetting::bandwidth)].granted));
    return {};
}

Result<void> read_shaped(const Node &root, const Node & /*value*/, Config &into) {
    return read_limited_prefixes(root, into);
}

Result<void> read_result(const Node & /*root*/, const Node &value, Config &into) {
    if (value.present())
        into.prev_result = TRY(read_attachment(value));
    return {};
}

Result<void> read_dns_section(const Node & /*root*/, const Node &value, Config &into) {
    into.dns = TRY(read_dns(value));
    return {};
}

// In the table behind `defaultRoute`, which says it in Podlane's own words.
Result<void> read_default_gateway(const Node & /*root*/, const Node &value, Config &into) {
    bool wanted = false;
    TRY(json::read(value, wanted));
    if (wanted && !into.default_route)
        into.default_route = true;
    return {};
}

Result<void> read_arguments(const Node & /*root*/, const Node &value, Config &into) {
    TRY(value.must_be_object(R"({"cni": {"ips": ["192.0.2.7"]}})"));
    return read_requested(value.at_any_case("cni"), into);
}

Result<void> read_runtime(const Node & /*root*/, const Node &value, Config &into) {
    if (const Node dns = value.at_any_case("dns"); dns.present())
        into.runtime_dns = TRY(read_runtime_dns(dns));
    return read_requested(value, into);
}

Result<void> read_capabilities(const Node & /*root*/, const Node &value, Config & /*into*/) {
    return value.must_be_object(R"({"bandwidth": true})");
}

template <auto Member, auto Reader> Result<void> of_isolation(const Node & /*root*/, const Node &value, Config &into) {
    return Reader(value, into.isolation.*Member);
}

constexpr std::string_view kNoBridge = "Podlane makes no bridge";
constexpr std::string_view kNoMaster =
    "Podlane makes no interface of another one; \"uplink\" names a network's egress route";
constexpr Key::Read kElsewhere = nullptr; // with the row above that has a reader

constexpr auto kKeys = std::to_array<Key>({
    {"cniVersion", specification, "version", "\"0.1.0\"",
     "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0 or 1.1.0. Other versions are error 1",
     nullptr}, // read before all others: errors are written in it
    {"name", specification, "at most 127 of letters, digits, `_.-`", "required",
     "the network: addresses are looked up within it", checked<&Config::name, read_name>},
    {"type", specification, "string", "required", "`podlane`, by which the runtime finds the plugin",
     plain<&Config::type>},
    {"ipam", specification, "object with `type`", "none",
     "Podlane is the main plugin and calls the IPAM plugin `type` from CNI_PATH, in the newest version that both know. "
     "Everything else in the object is that plugin's. Not `dhcp`: it sends by the interface, which is made for its "
     "answer",
     checked<&Config::ipam_type, read_ipam_type>},
    {"prevResult", specification, "result", "none",
     "result of the plugin before: if it has an interface in the container, or one of the host and the container has "
     "the "
     "requested one, Podlane adopts it, else Podlane creates one for the addresses",
     read_result},
    {"dns", specification, "object", "none",
     "put into the result if the IPAM plugin returns none; `nameservers` are IP addresses", read_dns_section},
    {"ipMasq", specification, "true, false", "false",
     "packets from the network's pods to addresses that are neither in `clusterCIDRs` or `noMasquerade`, nor "
     "multicast, "
     "nor of pods of the network on this node leave with the node's address. Done by nftables (table "
     "`podlane-NETWORK`, pods in a "
     "set); by iptables (chain `PODLANE-` and the network's number, for the lease's subnet) if the node's NAT uses the "
     "older iptables or `nft` is not installed. Removed with the network's last pod",
     plain<&Config::ip_masq>},
    {"args", specification, "object", "none", "see [What the runtime passes](#what-the-runtime-passes)",
     read_arguments},
    {"runtimeConfig", specification, "object", "none",
     "written by the runtime: see [What the runtime passes](#what-the-runtime-passes)", read_runtime},
    {"capabilities", specification, "object", "none",
     "what the runtime is to write into `runtimeConfig`: see [What the runtime passes](#what-the-runtime-passes)",
     read_capabilities},

    {"mtu", top, "number, 0 or 68 to 65535", "0",
     "MTU of both ends of the veth pair. 0: the MTU of the interface with the node's default route, or 1500 if there "
     "is none. At least 1280 with IPv6",
     checked<&Config::mtu, read_mtu>},
    {"routes", top, "list of routes", "none",
     "routes of the pod, added to those of the IPAM result. Each has `dst` and optionally `gw` `mtu` `advmss` "
     "`priority` `table`, as in a CNI result (`scope` is accepted and has no effect: every next hop is the host-side "
     "veth). An `mtu` above the interface's is an error, unless the pod has lowered that. Routes of an address family "
     "that the pod has no address in are dropped",
     read_route_list},
    {"defaultRoute", top, "true, false", "as needed",
     "a default route for each address family of the pod. `true`: unless the IPAM result or `routes` has one. `false`: "
     "none. As needed: for a family for which neither the IPAM result nor `routes` has any route, unless another "
     "interface of the container has a default route",
     plain<&Config::default_route>},
    {"isDefaultGateway", top, "true, false", "false",
     "the plugin bridge's word, for configurations written for it. `true`: `defaultRoute` is true, unless it is set",
     read_default_gateway},
    {"hostInterfacePrefix", top, "1 to 4 of `a-z0-9_-`, a letter first", "\"cali\"",
     "start of the host-side veth's name; the rest is a hash of container ID and interface name",
     checked<&Config::host_interface_prefix, read_host_prefix>},
    {"fastPath", top, "`\"on\"`, `\"local\"`, `\"off\"`, or true, false", "\"on\"",
     "`on`: fast path to pods of this node and, by the uplinks, of other nodes. `local`: only to pods of this node. "
     "`off`: all packets take the slow path. `off` at one of two pods is enough for both",
     checked<&Config::fast_path, read_fast_path>},
    {"firstPacket", top, "`\"host\"`, `\"direct\"`", "\"host\"",
     "`host`: a connection takes the fast path once the host's rules have let a packet of each direction through, and "
     "conntrack knows it. `direct`: TCP and UDP between pods take the fast path from the first packet on, and no rule "
     "of the host sees them; everything else begins as with `host`. `host` at one of two pods is enough for both",
     checked<&Config::first_packet_direct, read_first_packet>},
    {"slowPathMark", top, "`\"VALUE/MASK\"`", "none",
     "connections whose conntrack mark has VALUE under MASK stay on the slow path; the mark is set by rules of your "
     "own",
     read_mark_and_mask},
    {"confirmIntervalMs", top, "number, 10 to 60000", "1000",
     "how long the fast path follows a connection before it queries conntrack again",
     checked<&Config::confirm_interval_ms, read_confirm_interval>},
    {"conntrackLiberal", top, "true, false", "true",
     "ADD sets the sysctls `nf_conntrack_tcp_be_liberal` and `nf_conntrack_tcp_ignore_invalid_rst` to 1, and logs it: "
     "conntrack does not see the data of connections on the fast path, and must accept the end of them. `false`: ADD "
     "leaves them; while the first one is 0, TCP that conntrack tracks stays on the slow path",
     plain<&Config::conntrack_liberal>},
    {"expeditedRcu", top, "true, false", "true",
     "the kernel expedites grace periods (`/sys/kernel/rcu_expedited`) for the milliseconds in which a program is "
     "attached "
     "or an interface removed. `false`: ADD and DEL take longer, and more so with many CPUs",
     plain<&Config::expedited_rcu>},
    {"attach", top, "`\"auto\"`, `\"clsact\"`, `\"tcx\"`", "\"auto\"",
     "how programs are attached. `auto`: tcx if the kernel has it (Linux 6.6), else clsact. Foreign programs on clsact "
     "run after tcx and see what the fast path leaves; with `clsact` Podlane's programs run among them. `clsact` fails "
     "if a foreign `ingress` qdisc (for example the `bandwidth` plugin's) occupies the clsact slot",
     checked<&Config::attach, read_attach>},
    {"antiSpoof", top, "true, false", "true",
     "drop packets from the pod that do not have its MAC and one of its addresses, in ARP and neighbour discovery too",
     plain<&Config::anti_spoof>},
    {"uplinks", top, "list of interface names and shell patterns (`\"eth0\"`, `\"ens*\"`), 256 characters in all",
     "none",
     "interfaces by which pods reach other nodes on the fast path. None: the interfaces of the default routes with the "
     "lowest metric, IPv4 and IPv6. See [Uplinks](#uplinks)",
     checked<&Config::uplinks, read_uplinks>},
    {"uplink", top, "interface name", "none",
     "the network's own egress route: everything its pods send beyond the node leaves by this interface, to the "
     "neighbour on the link or to the gateway. Neighbours on the link reach the pods without a route. See "
     "[SOURCE-ROUTING.md](SOURCE-ROUTING.md#3-addresses-of-a-lan)",
     checked<&Config::uplink, read_uplink>},
    {"gateway", top, "address, or list with one of each family",
     "that of the IPAM result, else of the uplink's default route",
     "next hop on `uplink` for destinations outside the lease's subnet. Without `uplink`: the uplink is the interface "
     "that has the gateway on its link. Not an address of the node itself",
     checked<&Config::gateways, read_gateways>},
    {"table", top, "number, not 255", "the main one",
     "routing table in which ADD looks up `uplink` and `gateway` if they are not given",
     checked<&Config::table, read_table>},
    {"sourceRouting", top, "true, false", "true",
     "packets with this interface's source address leave by this network, whichever interface of the container they "
     "leave by. See [SOURCE-ROUTING.md](SOURCE-ROUTING.md)",
     plain<&Config::source_routing>},
    {"clusterCIDRs", top, "list of prefixes", "none",
     "addresses of the pods on all nodes: not masqueraded by `ipMasq`, and with `\"firstPacket\": \"direct\"` reached "
     "by an uplink from the first packet on. The newest ADD's list applies to the whole network. A list that holds all "
     "addresses (`0.0.0.0/0`) is logged with a warning, as are host bits in any list of prefixes, and in `routes`",
     checked<&Config::cluster_cidrs, read_prefixes>},
    {"noMasquerade", top, "list of prefixes", "none",
     "other destinations that `ipMasq` does not masquerade, such as a data centre that routes the pods' addresses. The "
     "newest ADD's list applies to the whole network",
     checked<&Config::no_masquerade, read_prefixes>},
    {"mark", top, "number, one bit", "4096",
     "bit in the packet mark by which the programs recognise their own packets on an uplink; it is cleared there. At "
     "most 4096 (0x1000): the bits above belong to portmap (0x2000), kube-proxy (0x4000, 0x8000) and Calico "
     "(0xffff0000)",
     checked<&Config::mark, read_mark>},
    {"allowedSources", top, "list of addresses and prefixes", "none",
     "source addresses that a pod may use besides its own. On a network with an `uplink` they leave by it as well "
     "([what comes for them](SOURCE-ROUTING.md#3-addresses-of-a-lan) does not)",
     checked<&Config::allowed_sources, read_prefixes>},
    {"allowedEtherTypes", top,
     "list of `\"llc\"` (802.3 frames such as STP), `\"lldp\"`, `\"mpls\"`, `\"pppoe\"`, `\"vlan\"` (tags of any VLAN "
     "but 0), `\"any\"` (all others)",
     "none",
     "frames that a pod with `antiSpoof` may send besides IPv4, IPv6 and ARP. Podlane does not check their content",
     checked<&Config::allowed_ether_types, read_ether_types>},
    {"bpffs", top, "absolute path", "\"" PODLANE_ROOT "\"",
     "directory for maps and programs, on a BPF file system. Pods of different directories do not know of each other: "
     "after an edit, those of the former "
     "one are removed as they were made, but an uplink has the programs of the last ADD alone",
     checked<&Config::bpffs, read_directory>},
    {"stateDir", top, "absolute path", "\"/var/lib/podlane\"",
     "directory for the records of attachments, one small file each: what DEL, GC and repairs go by after a reboot or "
     "lost maps. Not on a tmpfs, nor in `bpffs`. After an edit, DEL and GC also look in the default directory, and in "
     "no other: "
     "without "
     "its record a pod is removed by the maps and the edited configuration, and a lease that only the record names "
     "stays, until `podlanectl gc --state-dir` with the former directory",
     checked<&Config::state_dir, read_directory>},
    {"identity", top, "list of `\"annotations\"`, `\"labels\"`, `\"mesos\"`, `\"cni-args\"`, `\"kubernetes\"`", "none",
     "where the pod's labels come from, besides CNI_ARGS: see [IDENTITY.md](IDENTITY.md)",
     checked<&Config::identity, read_identity_sources>},
    {"kubernetes", top, "object with `kubeconfig`, or with `server`, `tokenFile`, `caFile`; and `onFailure`", "none",
     "how `podlane-k8s` reaches the API server, for `\"identity\": [\"kubernetes\"]` and [`usePodCidr`]"
     "(IDENTITY.md#the-nodes-ranges). `onFailure`: `\"refuse\"` the ADD (default), or `\"continue\"` without what it "
     "says of the pod. See [IDENTITY.md](IDENTITY.md#what-the-api-server-says)",
     checked<&Config::kubernetes, read_kubernetes>},
    {"nodename", top, "string of at most 253 characters", "`$NODENAME`, else the host's name",
     "name of the node in the records of its endpoints", checked<&Config::node_name, read_node_name>},
    {"groups", top,
     "list of at most 8 of `\"namespace\"`, `\"network\"`, `\"name:X\"`, `\"label:KEY\"`, `\"annotation:KEY\"`", "none",
     "groups that the pod is a member of, for `podlanectl group list`. See [IDENTITY.md](IDENTITY.md#groups)",
     checked<&Config::group_sources, read_groups>},
    {"isolation", top, "`\"none\"`, `\"network\"`, `\"group\"`", "\"none\"",
     "which pods may open connections to the pod. `group`: those that share a group with it. `network`: those of its "
     "network. See [IDENTITY.md](IDENTITY.md#isolation)",
     of_isolation<&Isolation::by, read_isolation>},
    {"allow", top, "list of at most 16 pairs of groups", "none",
     "groups whose members may connect to each other: `[[\"tenant-a\", \"namespace:kube-system\"]]`",
     of_isolation<&Isolation::allow, read_allow>},
    {"host", top, "`\"allow\"`, `\"deny\"`", "\"allow\"",
     "whether the node may open connections to an isolated pod, as kubelet does for probes",
     of_isolation<&Isolation::host, read_admission>},
    {"outside", top, "`\"allow\"`, `\"deny\"`", "\"deny\"",
     "whether those may that are neither the node nor a pod that it knows",
     of_isolation<&Isolation::outside, read_admission>},
    {"egress", top, "`\"allow\"`, `\"cluster\"`", "\"allow\"",
     "to whom the pod may open connections. `allow`: to everybody. `cluster`: to addresses in `clusterCIDRs`, and to "
     "the node itself. See [IDENTITY.md](IDENTITY.md#what-a-pod-may-open)",
     checked<&Config::egress_in_cluster, read_egress>},
    {"groupCIDRs", top, "object of groups and at most 64 prefixes", "none",
     "addresses of a group's pods on other nodes: `{\"tenant-a\": [\"198.18.64.0/20\"]}`",
     of_isolation<&Isolation::group_cidrs, read_group_cidrs>},
    {"podMay", top, "list of settings, or object of settings with bounds", "`[\"bandwidth\"]`",
     "what annotations of the pod may set: see [IDENTITY.md](IDENTITY.md#settings-that-come-with-the-pod)",
     checked<&Config::pod_may, read_pod_may>},
    {"podMayNot", top, "`\"ignore\"`, `\"refuse\"`", "\"ignore\"",
     "whether annotations that set anything else are logged with a warning, or fail the ADD",
     checked<&Config::refuse_annotations, read_pod_may_not>},
    {"pools", top, "object of parts of `ipam`, by name", "none",
     "pools that a pod can choose: the part is merged into what the IPAM plugin gets",
     checked<&Config::pools, read_pools>},
    {"allowIPForwarding", top, "true, false", "false",
     "whether the pod's namespace forwards: ADD sets `net.ipv4.ip_forward` and `net.ipv6.conf.all.forwarding` there, "
     "as far as the pod has addresses of the family. Of a container with several interfaces, one with this key is "
     "enough. The pod can change them later",
     plain<&Config::allow_ip_forwarding>},
    {"sysctls", top, "object of names below `net.` and values", "none",
     "settings of the pod's namespace. A name that the kernel does not have is an error, and a value that it refuses",
     checked<&Config::sysctls, read_sysctls>},
    {"ipFamilies", top, "list of `\"IPv4\"`, `\"IPv6\"`", "what the lease has",
     "address families of the pod: ADD fails if the lease has no address of one of them, and leaves out those of "
     "others",
     checked<&Config::ip_families, read_ip_families>},
    {"ipamTimeout", top, "seconds, 1 to 3600", "30",
     "how long the IPAM plugin may take; then it is killed with what it has started, and the call fails",
     checked<&Config::ipam_timeout_s, read_ipam_timeout>},
    {"keepAddress", top, "`\"none\"`, `\"statefulSet\"`, `\"all\"`", "\"none\"",
     "which pods get their addresses back if they return to the node in time: `statefulSet`: those whose name ends in "
     "`-` and a number. See [IDENTITY.md](IDENTITY.md#addresses-that-stay)",
     checked<&Config::keep_address, read_keep_address>},
    {"keepAddressSeconds", top, "seconds, 1 to 604800", "300", "how long they are held for the pod",
     checked<&Config::keep_address_s, read_keep_seconds>},
    {"maxEndpoints", top, "number, 1 to 16777216", "4096",
     "number of attachments the maps can hold, with four addresses each; a limit group counts as one",
     checked<&Config::max_endpoints, read_map_size>},
    {"maxPaths", top, "number, 1 to 16777216", "65536",
     "size of the flow cache; the least recently used flow is evicted first",
     checked<&Config::max_paths, read_map_size>},
    {"log", top, "object with the two keys below", "none", "where the log goes, and how much", read_log},
    {"log.file", log, "absolute path", "standard error", "lines are appended; the file is created with mode 0600",
     of_log<&Log::file, read_log_file>},
    {"log.level", log, "`\"error\"`, `\"warning\"`, `\"info\"`, `\"debug\"`", "\"warning\"",
     "the least important lines to log", of_log<&Log::level, read_log_level>},
    {"bandwidth", top, "object", "none", "the six keys below in an object, instead of at the top level", read_limits},
    {"ingressRate", limits, "number", "0",
     "limit of what the pod receives, in bits per second; 0: no limit. See [BANDWIDTH.md](BANDWIDTH.md)", kElsewhere},
    {"ingressBurst", limits, "number", "0",
     "its burst in bits, required beside a rate. 2147483647, or a second or more, means 100 ms of the rate",
     kElsewhere},
    {"egressRate", limits, "number", "0", "as `ingressRate`, of what the pod sends", kElsewhere},
    {"egressBurst", limits, "number", "0", "as `ingressBurst`", kElsewhere},
    {"unshapedSubnets", limits, "list of prefixes, or `{\"ingress\": […], \"egress\": […]}`", "none",
     "remote addresses that no limit applies to, or not the limit of that direction", read_shaped},
    {"shapedSubnets", limits, "as `unshapedSubnets`", "none",
     "if not empty, limits apply only to these remote addresses. Not together with `unshapedSubnets`", kElsewhere},
    {"limitRule", top, "`\"smaller\"`, `\"static\"`", "\"smaller\"",
     "what counts if both the configuration and the runtime (or an annotation) set limits. `smaller`: the smaller rate "
     "of each direction. `static`: those of the configuration, in both directions, as with the reference plugin",
     kElsewhere},
    {"limitGroup", top, "name of one of `limitGroups`", "none",
     "the pod shares the group's rate: its own rates are guaranteed, and it may borrow what the group's other pods do "
     "not use. See [BANDWIDTH.md](BANDWIDTH.md#one-limit-for-a-group-of-pods)",
     checked<&Config::limit_group, read_limit_group>},
    {"limitGroups", top, "object of objects with `ingressRate`, `ingressBurst`, `egressRate`, `egressBurst`, by name",
     "none", "limits that pods of the network share", checked<&Config::limit_groups, read_limit_groups>},
    {"limiter", top, "`\"auto\"`, `\"pace\"`, `\"edt\"`, `\"bucket\"`", "\"auto\"",
     "what slows senders down before packets are dropped. `pace`: TCP senders of this node are paced. `edt`: the qdisc "
     "`fq` of the host-side veth holds packets to the pod until their earliest departure time, or `htb` if the kernel "
     "has no `fq` (error 50 if it has neither). `bucket`: nothing. `auto`: everything the kernel has. See "
     "[BANDWIDTH.md](BANDWIDTH.md)",
     checked<&Config::limiter, read_limiter>},

    {"disableCheck", unread, "", "", "key of a configuration list", nullptr},
    {"disableGC", unread, "", "", "key of a configuration list", nullptr},
    {"loadOnlyInlinedPlugins", unread, "", "", "key of a configuration list", nullptr},
    {"plugins", unread, "", "", "key of a configuration list", nullptr},
    {"cniVersions", unread, "", "", "key of a configuration list", nullptr},
    {"delegates", unread, "", "", "key of a meta-plugin", nullptr},
    {"deviceID", unread, "", "", "key of a meta-plugin", nullptr},
    {"pciBusID", unread, "", "", "key of a meta-plugin", nullptr},
    {"resourceName", unread, "", "", "key of a meta-plugin", nullptr},

    {"bridge", foreign, "", "", kNoBridge, nullptr},
    {"forceAddress", foreign, "", "", kNoBridge, nullptr},
    {"hairpinMode", foreign, "", "", "a pod reaches itself by a Service without it", nullptr},
    {"isGateway", foreign, "", "", "the gateway of a pod is always its host-side veth", nullptr},
    {"promiscMode", foreign, "", "", kNoBridge, nullptr},
    {"vlan", foreign, "", "", kNoBridge, nullptr},
    {"vlanTrunk", foreign, "", "", kNoBridge, nullptr},
    {"preserveDefaultVlan", foreign, "", "", kNoBridge, nullptr},
    {"portIsolation", foreign, "", "", kNoBridge, nullptr},
    {"disableContainerInterface", foreign, "", "", kNoBridge, nullptr},
    {"macspoofchk", foreign, "", "", "that is done by \"antiSpoof\", which is on unless it is false", nullptr},
    {"enabledad", foreign, "", "", "the addresses of pods need no duplicate address detection", nullptr},
    {"ipMasqBackend", foreign, "", "", "the tool that masquerades is the one that the node's NAT uses", nullptr},
    {"master", foreign, "", "", kNoMaster, nullptr},
    {"mode", foreign, "", "", kNoMaster, nullptr},
    {"linkInContainer", foreign, "", "", kNoMaster, nullptr},
});

} // namespace

std::span<const Key> keys() { return kKeys; }

} // namespace podlane::cni
