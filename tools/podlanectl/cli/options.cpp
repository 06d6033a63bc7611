// Every option, in the order of the help texts.
#include "tools/podlanectl/cli/cli.hpp"

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

} // namespace

std::span<const Option> options() { return kOptions; }

} // namespace podlane::ctl
