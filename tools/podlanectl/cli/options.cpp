// SPDX-License-Identifier: MIT
// Every option, in the order of the help texts.
#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {
namespace {

constexpr std::array<Option, static_cast<std::size_t>(Opt::count)> kOptions = {{
    {Opt::pod, 'p', "pod", "NAME", "the pod NAME, or NAMESPACE/NAME"},
    {Opt::ns, 'n', "namespace", "NAMESPACE", "pods of this namespace"},
    {Opt::container, 'c', "container", "PREFIX", "containers whose ID begins like this"},
    {Opt::address, 'a', "address", "IP", "the owner of this address"},
    {Opt::interface, 'i', "interface", "HOSTIF", "the endpoint behind this interface of the node"},
    {Opt::network, '\0', "network", "NAME", "endpoints of this network"},
    {Opt::selector, 'l', "selector", "LABELS", "pods with these labels: KEY=VALUE,KEY!=VALUE,KEY,!KEY"},
    {Opt::all, '\0', "all", "", "include what is left out by default"},
    {Opt::reasons, '\0', "reasons", "", "list the reasons and their meaning only"},
    {Opt::source, '\0', "source", "IP", "packets sent from this address"},
    {Opt::destination, '\0', "destination", "IP", "packets sent to this address"},
    {Opt::force, '\0', "force", "", "even if there seems to be nothing to do"},
    {Opt::ingress_rate, '\0', "ingress", "RATE", "bits per second to the pod, as in 10M, 2.5G; 0: no limit"},
    {Opt::ingress_burst, '\0', "ingress-burst", "BITS", "burst size; auto: 100 ms of the rate"},
    {Opt::egress_rate, '\0', "egress", "RATE", "bits per second from the pod; 0: no limit"},
    {Opt::egress_burst, '\0', "egress-burst", "BITS", "burst size; auto: 100 ms of the rate"},
    {Opt::watch, 'w', "watch", "", "print again each second, until interrupted"},
    {Opt::from, '\0', "from", "POD", "the sending pod, or the uplink the packet arrives on"},
    {Opt::to, '\0', "to", "ADDR[:PORT]", "the destination"},
    {Opt::proto, '\0', "proto", "PROTOCOL", "tcp, udp or icmp (default: tcp with a port, else icmp)"},
    {Opt::size, '\0', "size", "BYTES", "of the IP packet"},
    {Opt::flags, '\0', "flags", "WORD", "of a TCP packet: syn, ack, fin or rst (default: syn)"},
    {Opt::frame, '\0', "frame", "HEX", "the whole Ethernet frame"},
    {Opt::out, '\0', "out", "", "trace what the host stack sends to the pod or by the uplink"},
    {Opt::sample, '\0', "sample", "N", "show one in N packets that are not dropped (default: 100)"},
    {Opt::limit, '\0', "limit", "N", "end after N lines"},
    {Opt::sort, '\0', "sort", "COLUMN", "initial sort column"},
    {Opt::fix, '\0', "fix", "", "repair what Podlane can repair"},
    {Opt::nodes, '\0', "nodes", "FILE", "the cluster's nodes: does a route lead to the pods of each?"},
    {Opt::last, '\0', "last", "N", "show at most N (default: 20)"},
    {Opt::listen, '\0', "listen", "ADDR:PORT", "serve metrics over HTTP, until interrupted"},
    {Opt::openmetrics, '\0', "openmetrics", "", "print OpenMetrics 1.0 instead of the Prometheus text format"},
    {Opt::labels, '\0', "labels", "KEYS", "labels and annotations of pods to print, separated by commas"},
    {Opt::bin_dir, '\0', "bin-dir", "DIR", "the runtime's plugin directory (default: /opt/cni/bin)"},
    {Opt::conf_dir, '\0', "conf-dir", "DIR", "the runtime's network directory (default: /etc/cni/net.d)"},
    {Opt::dry_run, '\0', "dry-run", "", "print what would be done, and change nothing"},
    {Opt::subnets, '\0', "subnets", "PREFIXES", "addresses of this node's pods, separated by commas"},
    {Opt::cluster_cidrs, '\0', "cluster-cidrs", "PREFIXES", "addresses of pods on all nodes: \"clusterCIDRs\""},
    {Opt::from_node, '\0', "from-node", "FILE", "the node's object: its spec.podCIDRs, instead of --subnets"},
    {Opt::mode, '\0', "mode", "WORD", "main, or chained: behind the network that the runtime uses (default: main)"},
    {Opt::uplinks, '\0', "uplinks", "NAMES", "interfaces or patterns, separated by commas: \"uplinks\""},
    {Opt::fast_path, '\0', "fast-path", "WORD", "on, local or off: \"fastPath\""},
    {Opt::log_file, '\0', "log-file", "FILE", "\"log.file\""},
    {Opt::log_level, '\0', "log-level", "WORD", "error, warning, info or debug: \"log.level\""},
    {Opt::no_masquerade, '\0', "no-masquerade", "", "without \"ipMasq\": the network routes the pods' addresses"},
    {Opt::mtu, '\0', "mtu", "BYTES", "of the pods' interfaces: \"mtu\""},
    {Opt::keys, '\0', "keys", "JSON", "further keys of the plugin: '{\"egressRate\": 100000000}'"},
    {Opt::plugin, '\0', "plugin", "FILE", "the plugin to install (default: podlane beside podlanectl)"},
    {Opt::state_dir, '\0', "state-dir", "DIR",
     "directory of the attachments' records (default: \"stateDir\" of the networks)"},
    {Opt::json, 'j', "json", "", "print JSON, with raw numbers"},
    {Opt::bpffs, '\0', "bpffs", "DIR", "directory of the pinned maps (default: $PODLANE_BPFFS or /sys/fs/bpf/podlane)"},
    {Opt::help, 'h', "help", "", "print help for the object or verb"},
}};

} // namespace

std::span<const Option> options() { return kOptions; }

} // namespace podlane::ctl
