// The one table.
#include "tools/podlanectl/cli/commands.hpp"

namespace podlane::ctl {
namespace {

constexpr std::array<Option, static_cast<std::size_t>(Opt::count)> kOptions = {{
    {Opt::pod, 'p', "pod", "NAME", "the pod NAME, or NAMESPACE/NAME"},
    {Opt::ns, 'n', "namespace", "NAMESPACE", "pods of this namespace"},
    {Opt::container, 'c', "container", "PREFIX", "containers whose ID begins like this"},
    {Opt::address, 'a', "address", "IP", "the owner of this address"},
    {Opt::interface, 'i', "interface", "HOSTIF", "the endpoint behind this interface of the host"},
    {Opt::network, '\0', "network", "NAME", "endpoints of this network"},
    {Opt::all, '\0', "all", "", "also what is left out otherwise"},
    {Opt::reasons, '\0', "reasons", "", "only list the reasons and their meaning"},
    {Opt::source, '\0', "source", "IP", "what is sent from this address"},
    {Opt::destination, '\0', "destination", "IP", "what is sent to this address"},
    {Opt::force, '\0', "force", "", "also where there seems to be nothing to do"},
    {Opt::ingress_rate, '\0', "ingress", "RATE", "bits per second to the pod, as in 10M, 2.5G; 0: no limit"},
    {Opt::ingress_burst, '\0', "ingress-burst", "BITS", "what may pass at once; auto: 100 ms of the rate"},
    {Opt::egress_rate, '\0', "egress", "RATE", "bits per second from the pod; 0: no limit"},
    {Opt::egress_burst, '\0', "egress-burst", "BITS", "what may pass at once; auto: 100 ms of the rate"},
    {Opt::watch, 'w', "watch", "", "print again each second, until interrupted"},
    {Opt::from, '\0', "from", "POD", "the pod that sends, or the uplink it comes in by"},
    {Opt::to, '\0', "to", "ADDR[:PORT]", "where it is sent to"},
    {Opt::proto, '\0', "proto", "PROTOCOL", "tcp, udp or icmp (default: tcp with a port, else icmp)"},
    {Opt::size, '\0', "size", "BYTES", "of the IP packet"},
    {Opt::frame, '\0', "frame", "HEX", "the whole Ethernet frame"},
    {Opt::out, '\0', "out", "", "what the host stack sends to the pod, or by the uplink"},
    {Opt::sample, '\0', "sample", "N", "of N packets that are not dropped show one (default: 100)"},
    {Opt::limit, '\0', "limit", "N", "end after N lines"},
    {Opt::sort, '\0', "sort", "COLUMN", "sort by this column at first"},
    {Opt::fix, '\0', "fix", "", "mend what is Podlane's to mend"},
    {Opt::last, '\0', "last", "N", "at most so many (default: 20)"},
    {Opt::listen, '\0', "listen", "ADDR:PORT", "serve them by HTTP, until interrupted"},
    {Opt::openmetrics, '\0', "openmetrics", "", "print OpenMetrics 1.0 instead of the Prometheus text format"},
    {Opt::bin_dir, '\0', "bin-dir", "DIR", "where the runtime looks for plugins (default: /opt/cni/bin)"},
    {Opt::conf_dir, '\0', "conf-dir", "DIR", "where the runtime looks for networks (default: /etc/cni/net.d)"},
    {Opt::dry_run, '\0', "dry-run", "", "only say what would be done"},
    {Opt::subnets, '\0', "subnets", "PREFIXES", "addresses of this node's pods, with a comma between"},
    {Opt::cluster_cidrs, '\0', "cluster-cidrs", "PREFIXES", "addresses of pods on all nodes: \"clusterCIDRs\""},
    {Opt::uplinks, '\0', "uplinks", "NAMES", "interfaces or patterns with a comma between: \"uplinks\""},
    {Opt::fast_path, '\0', "fast-path", "WORD", "on, local or off: \"fastPath\""},
    {Opt::mtu, '\0', "mtu", "BYTES", "of the pods' interfaces: \"mtu\""},
    {Opt::plugin, '\0', "plugin", "FILE", "the plugin to install (default: podlane beside podlanectl)"},
    {Opt::json, 'j', "json", "", "print JSON, with raw numbers"},
    {Opt::bpffs, '\0', "bpffs", "DIR", "where the maps are pinned (default: $PODLANE_BPFFS or /sys/fs/bpf/podlane)"},
    {Opt::help, 'h', "help", "", "print help for what was named"},
}};

constexpr Opts kHelp{Opt::help};
constexpr Opts kPlain{Opt::json, Opt::bpffs, Opt::help};
constexpr Opts kRead = kPlain | Opts{Opt::watch};
constexpr Argument kWhich{"WHICH", false, "a pod, NAMESPACE/POD, container ID prefix, address or host interface"};
constexpr Argument kMap{"MAP", true,
                        "its name, with or without version, or the beginning of it (\"podlanectl map list\")"};
constexpr Argument kKey{"KEY", false, "the entry's key, as \"podlanectl map dump\" prints it"};
constexpr Argument kUplink{"INTERFACE", true, "its name, or \"all\""};

constexpr std::string_view kGetDetail =
    "KEY is one or more words, in the order of the columns of \"podlanectl map dump MAP\"; those that are not needed "
    "to\n"
    "tell the entry from the others may be left out:\n"
    "  endpoints      POD [IFNAME]\n"
    "  interfaces     INTERFACE (also bandwidths, counters, uplinks)\n"
    "  addresses      [NETWORK] ADDRESS\n"
    "  networks       NETWORK\n"
    "  paths          [INTERFACE] [PROTOCOL] LOCAL PEER\n"
    "  allowed_srcs   [INTERFACE] PREFIX\n"
    "  cluster_cidr   [NETWORK] PREFIX\n"
    "  source_route   [INTERFACE] SOURCE\n"
    "  limit_state    [INTERFACE] DIRECTION\n"
    "  exempt         [INTERFACE] [DIRECTION] PREFIX\n"
    "  senders        [NETNS] ADDRESS\n"
    "  history        NUMBER\n"
    "INTERFACE is also a number, or whatever else names an endpoint; PREFIX also an address, of which the longest\n"
    "prefix is found. Exit code 1 where there is no such entry.";

} // namespace

std::span<const Option> options() { return kOptions; }

const std::vector<Noun> &nouns() {
    static const std::vector<Noun> kNouns = {
        {"endpoint",
         "the pods' interfaces: who they are, where, how attached",
         {{"list", "List endpoints.", kSelect | kRead, kWhich,
           "Several options must all match. Prints everything of each endpoint with --json.", endpoint_list},
          {"show", "Show everything known of an endpoint, and its link and programs as they are now.", kSelect | kRead,
           kWhich, "Times, rates and flags are in words; --json has the raw values.", endpoint_show}}},
        {"counter",
         "what became of each pod's packets, by reason",
         {{"list", "List packets and bytes by endpoint and reason, summed over the CPUs.",
           kSelect | kRead | Opts{Opt::all, Opt::reasons}, kWhich,
           "Kinds: fast (past the host stack), host (through it), answer (by the program itself), drop.\n"
           "What goes from one pod to another past the host stack counts at both.",
           counter_list}}},
        {"bandwidth",
         "the limits of pods, and what they let through",
         {{"list", "List limits, and what they counted.", kSelect | kRead, kWhich, "", bandwidth_list},
          {"show", "Show everything known of a pod's limits.", kSelect | kRead, kWhich,
           "Bytes are those of frames on the wire: each segment with its headers. The fair rate is one flow's share.",
           bandwidth_show},
          {"set", "Change a pod's limits, from the next packet on.",
           kSelect | kPlain | Opts{Opt::ingress_rate, Opt::ingress_burst, Opt::egress_rate, Opt::egress_burst}, kWhich,
           "What is not named stays as it is. Lasts until DEL.", bandwidth_set, true},
          {"clear", "Take a pod's limits away, from the next packet on.", kSelect | kPlain, kWhich, "Lasts until DEL.",
           bandwidth_clear, true}}},
        {"path",
         "which way each flow came, and so returns",
         {{"list", "List the flows that are remembered.", kSelect | kRead, kWhich,
           "Ways: host (through the host stack, which may translate or filter it), direct (between two pods of this\n"
           "node), uplink NAME (answers leave by it), uplink by route (as the kernel's routes say).",
           path_list},
          {"show", "Show everything known of a pod's flows, or which way a packet would go, and why.",
           kSelect | kRead | Opts{Opt::source, Opt::destination}, kWhich,
           "With --source and --destination: for each interface chosen, which way what it sends from one to the other\n"
           "goes, as long as no flow says otherwise (\"podlanectl path list\").",
           path_show},
          {"flush", "Forget flows, so that their next packet chooses its way anew.", kSelect | kPlain | Opts{Opt::all},
           kWhich, "Needs to know which, or --all. Connections under way go on, through the host stack.", path_flush,
           true}}},
        {"network",
         "the networks of this node's pods, and how they leave it",
         {{"list", "List networks with their endpoints, cluster CIDRs and uplinks.", kSelect | kRead, kWhich, "",
           network_list}}},
        {"uplink",
         "the interfaces by which pods reach other nodes past the host stack",
         {{"list", "List uplinks, their networks and whether the programs are on them.", kSelect | kRead, kWhich,
           "Exit code 1 where an interface or its programs are gone. Of endpoints that are chosen: the uplinks of "
           "their\n"
           "networks. --interface also takes the uplink itself.",
           uplink_list},
          {"sync",
           "Put the programs on the interfaces that are uplinks now.",
           kPlain,
           {},
           "As the configuration of each network's last ADD says: for interfaces that appeared or were made anew "
           "since.",
           uplink_sync,
           true},
          {"detach", "Take the programs off an uplink.", kPlain, kUplink,
           "What leaves by it then takes the host stack. The next ADD of one of its networks puts them back, unless "
           "the\n"
           "configuration has changed.",
           uplink_detach, true}}},
        {"map",
         "the pinned BPF maps that hold all state",
         {{"list", "List the maps with entries, capacity and memory.", kSelect | kRead, kWhich,
           "Maps of another version of Podlane are listed too, and noted. Exit code 1 where a map is missing. Of "
           "endpoints\n"
           "that are chosen: the maps that hold something of theirs, with the number of these entries.",
           map_list},
          {"dump", "Print every entry of a map in words.", kSelect | kRead, kMap,
           "Of endpoints that are chosen: their entries, and those of their networks.", map_dump},
          {"get", "Print one entry of a map in words.", kSelect | kRead, kMap, kGetDetail, map_get, false, kKey}}},
        {"status",
         "is Podlane in order on this node",
         {{"", "Show kernel, programs, endpoints by network, maps and whatever is wrong with them.", kSelect | kRead,
           kWhich, "Exit code 1 where something is wrong. Of endpoints, those that are chosen.", status}}},
        {"doctor",
         "what is wrong on this node, why, and what to do",
         {{"", "Check the node and each endpoint; print each finding with its cause and remedy.",
           kSelect | kRead | Opts{Opt::fix}, kWhich,
           "With --fix, what is Podlane's is put right at once. Findings are \"wrong\", or a \"notice\": worth "
           "knowing.\n"
           "Exit code 1 where something is wrong, and was not fixed.",
           doctor_command}}},
        {"history",
         "what the plugin did last, and what took its time",
         {{"list", "List the last CNI calls, the newest first.", kSelect | kRead | Opts{Opt::last}, kWhich,
           "Steps: ipam (the IPAM plugin), network (locks and uplinks), link (making or removing the veth pair), pod "
           "and\n"
           "host (addresses, routes, neighbours), programs, entries (of maps), masquerade, wait (for IPv6 addresses),\n"
           "siblings, load (the programs, once a boot), undo (of a call that failed), other. The map keeps 256 calls.",
           history_list}}},
        {"metrics",
         "what there is to count, for Prometheus",
         {{"", "Print counters, map fill and CNI operations as metrics, or serve them.",
           kSelect | Opts{Opt::listen, Opt::openmetrics, Opt::bpffs, Opt::help}, kWhich,
           "Prints the text format 0.0.4, which node_exporter's textfile collector reads. The server gives OpenMetrics "
           "to\n"
           "whoever asks for it (Accept: application/openmetrics-text), and the same text to others.",
           metrics}}},
        {"program",
         "Podlane's programs in the kernel",
         {{"list", "List where programs are attached, and what they cost.", kSelect | kRead, kWhich,
           "Runs and their average time are of the program, on all its hooks together; the kernel counts them while\n"
           "\"sysctl kernel.bpf_stats_enabled\" is 1. PINNED no: not the program that new pods get.",
           program_list}}},
        {"source",
         "by which network what a container sends from each of its addresses leaves",
         {{"list", "List addresses, their interfaces, networks, uplinks and next hops.", kSelect | kRead, kWhich,
           "\"by route\": as the node's routes say. ALSO FROM: the container's other interfaces the address may be\n"
           "sent from.",
           source_list},
          {"show", "Show the same a line for each.", kSelect | kRead, kWhich, "", source_show}}},
        {"upgrade",
         "bring a running node to the version of this podlanectl",
         {{"",
           "Replace all programs by this version's, and carry the maps over.",
           kPlain | Opts{Opt::force},
           {},
           "Each hook changes over at once, between two packets; flows, counters and limits go on. Pods set up "
           "meanwhile\n"
           "wait. Where it fails, the version before goes on working. An older podlanectl takes the same way back.\n"
           "--force replaces the programs also where they are this version's already.",
           upgrade_node,
           true}}},
        {"explain",
         "what would become of a packet, and why",
         {{"",
           "Run the program that is attached over a packet built for the question, and print each decision.",
           kSelect | kRead | Opts{Opt::from, Opt::to, Opt::proto, Opt::source, Opt::size, Opt::frame, Opt::out},
           {},
           "Nothing is sent, written or counted. Who sends it may also be said by --pod and the like. With an uplink "
           "as\n"
           "--from, and with --out, --source is needed. A packet that goes on as another interface's of the container, "
           "or\n"
           "leaves by an uplink, is followed there.",
           explain}}},
        {"monitor",
         "drops, or all packets, as they happen",
         {{"",
           "Show each packet that is dropped: when, why, whose, from where to where, how long.",
           kSelect | kPlain | Opts{Opt::all, Opt::sample, Opt::limit},
           {"FILTER", false, "an expression as tcpdump takes it (pcap-filter(7)), in quotes"},
           "--all shows also one in 100 of the packets that are not dropped; --sample N one in N (1: each).\n"
           "\"->\": what comes from the pod or the uplink, \"<-\": what goes to it. When more comes than can be "
           "shown,\n"
           "it says how many were lost. One can watch at a time. --json prints an object a line.",
           monitor}}},
        {"top",
         "the busiest pods",
         {{"", "Show the traffic of each pod, on the whole screen, the busiest first.",
           kSelect | kPlain | Opts{Opt::sort}, kWhich,
           "Keys: < and > change the order, r reverses it, q quits. Orders: pod, traffic, from-pod, to-pod, "
           "packets-from,\n"
           "packets-to, drops. Without a terminal, and with --json, it prints the second that follows once.",
           top}}},
        {"gc",
         "remove what the runtime no longer has",
         {{"", "Remove endpoints whose interface and namespace are gone, as the runtime's DEL would have.",
           kSelect | kPlain | Opts{Opt::bin_dir, Opt::dry_run}, kWhich,
           "Calls the plugin's DEL for each. Leases stay with the runtime's own DEL or GC, which knows the IPAM "
           "plugin.",
           gc, true}}},
        {"install",
         "put the plugin and a configuration where the runtime looks for them",
         {{"",
           "Copy the plugin, and write 10-podlane.conflist from the options.",
           Opts{Opt::bin_dir, Opt::conf_dir, Opt::subnets, Opt::cluster_cidrs, Opt::uplinks, Opt::fast_path, Opt::mtu,
                Opt::network, Opt::plugin, Opt::bpffs, Opt::help},
           {},
           "Each file appears whole or not at all. Files that podlanectl did not write, or that somebody changed "
           "since,\n"
           "are left alone: nothing is written then. --network names the network (default: pods).",
           install,
           true}}},
        {"uninstall",
         "take everything of Podlane's off this node",
         {{"",
           "Remove configuration, programs, maps and the plugin; pods go on through the host stack.",
           Opts{Opt::bin_dir, Opt::conf_dir, Opt::bpffs, Opt::help},
           {},
           "Pods keep their interfaces, addresses and routes. While there are some, the plugin stays for their DEL.\n"
           "Files that podlanectl install did not write are left alone.",
           uninstall,
           true}}},
        {"version", "versions of podlanectl, its maps and libbpf", {{"", "Print versions.", kPlain, {}, "", version}}},
        {"completion",
         "completion of the command line in your shell",
         {{"bash", "Print a script for bash: source <(podlanectl completion bash)", kHelp, {}, "", completion_bash},
          {"zsh", "Print a script for zsh: source <(podlanectl completion zsh)", kHelp, {}, "", completion_zsh},
          {"fish", "Print a script for fish: podlanectl completion fish | source", kHelp, {}, "", completion_fish}}},
        {"man", "the manual page", {{"", "Print it: podlanectl man | man -l -", kHelp, {}, "", man}}},
    };
    return kNouns;
}

} // namespace podlane::ctl
