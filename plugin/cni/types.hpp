// SPDX-License-Identifier: MIT
// The values of one CNI call: what is requested (Request) and what is returned (Attachment). Plain data, checked on
// entry.
#pragma once

#include "maps/abi/config.h"
#include "maps/abi/names.h"
#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace podlane::cni {

enum class Command { add, del, check, gc, status, version };

// A version of the CNI specification, 0.1.0 to 1.1.0.
struct Version {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    auto operator<=>(const Version &) const = default;
};

// Labels of a pod, key by key. Bounded and printable (plugin/cni/labels.hpp).
using Labels = std::map<std::string, std::string, std::less<>>;

// From CNI_ARGS and, if it is silent, from the config; empty if neither says it.
struct PodIdentity {
    std::string name;
    std::string ns;
    std::string uid;
    std::string infra_container_id;
    Labels labels;      // of the runtime
    Labels annotations; // of the pod's author
};

// Settings that annotations of a pod can make.
enum class PodSetting {
    bandwidth,
    addresses,
    addresses_without_ipam,
    pools,
    mac,
    allowed_sources,
    mtu,
    fast_path,
    sysctls,
    limit_group,
    groups,
    routes,
    gateway,
    keep_address
};
inline constexpr std::size_t kPodSettings = 14;

// Whether a pod may set it, and within which bounds.
struct Permission {
    bool granted = false;
    std::vector<Prefix> within{};     // of addresses; none: any
    std::vector<std::string> names{}; // of pools, sysctls and limit groups; none: any pool, nothing else
    bool operator==(const Permission &) const = default;
};

// Where labels and annotations come from, beside CNI_ARGS.
inline constexpr std::uint32_t kAnnotations = 1U << 0U;
inline constexpr std::uint32_t kLabels = 1U << 1U;
inline constexpr std::uint32_t kMesos = 1U << 2U;
inline constexpr std::uint32_t kCniArgs = 1U << 3U;
inline constexpr std::uint32_t kKubernetes = 1U << 4U;

// How podlane-k8s reaches the API server: by a kubeconfig, or by the files of a service account.
struct Kubernetes {
    std::string kubeconfig{};
    std::string server{}, token_file{}, ca_file{};
    bool required = true; // ADD fails if the API server does not answer
    bool operator==(const Kubernetes &) const = default;
};

struct Interface {
    std::string name{};
    std::string mac{};                  // as text, may be empty
    std::string sandbox{};              // path of the namespace, empty on the host
    std::optional<std::uint32_t> mtu{}; // since 1.1.0
    std::string socket_path{};          // since 1.1.0, handed on
    std::string pci_id{};               // since 1.1.0, handed on
    bool operator==(const Interface &) const = default;
};

struct Address {
    Prefix prefix;
    std::optional<ip_addr> gateway;
    std::optional<std::size_t> interface; // index into interfaces
    bool operator==(const Address &) const = default;
};

inline constexpr std::uint32_t kLargestMss = 65495; // of IPv4: 65535 without the headers of IP and TCP

struct Route {
    Prefix destination;
    std::optional<ip_addr> gateway{};
    std::optional<std::uint32_t> mtu{}, advmss{}, priority{}, table{}, scope{}; // since 1.1.0
    bool operator==(const Route &) const = default;
};

struct Dns {
    std::vector<std::string> nameservers;
    std::string domain;
    std::vector<std::string> search;
    std::vector<std::string> options;
    bool operator==(const Dns &) const = default;
};

// A CNI result, whatever version it is written in: an IPAM plugin's, prevResult, or ours.
struct Attachment {
    std::vector<Interface> interfaces;
    std::vector<Address> addresses;
    std::vector<Route> routes;
    Dns dns;
    bool operator==(const Attachment &) const = default;
};

enum class FastPath { off, local, on };
enum class AttachBy { automatic, tcx, clsact };

// bits per second and bits, as in the reference `bandwidth` plugin; 0 is "no limit".
struct Bandwidth {
    std::uint64_t ingress_rate = 0, ingress_burst = 0, egress_rate = 0, egress_burst = 0;
    bool operator==(const Bandwidth &) const = default;
};

// By name.
using LimitGroups = std::map<std::string, Bandwidth, std::less<>>;

// The means that slow senders down before the bucket drops: all that the kernel has, pacing alone, earliest departure
// times alone (pacing for what the pod sends), or nothing.
enum class Limiter { automatic, pace, edt, bucket };

// Of the other side's addresses: what a limit does not concern, or, if not empty, all it concerns.
struct LimitedPrefixes {
    std::vector<Prefix> unshaped, shaped;
    bool operator==(const LimitedPrefixes &) const = default;
};

struct Log {
    std::string file; // empty: stderr
    enum class Level { error, warning, info, debug } level = Level::warning;
    bool operator==(const Log &) const = default;
};

// Whose addresses are held for a pod of the same name, once the pod is gone.
enum class KeepAddress { none, stateful_set, all };

enum class IsolateBy { none, network, group };

// Who may open connections to the pod.
struct Isolation {
    IsolateBy by = IsolateBy::none;
    std::vector<std::pair<std::string, std::string>> allow{};  // groups whose members may connect to each other
    bool host = true;                                          // the node
    bool outside = false;                                      // whoever is neither the node nor a known pod
    std::vector<std::pair<Prefix, std::string>> group_cidrs{}; // pods of other nodes, and their group
    bool operator==(const Isolation &) const = default;
};

// One of `cni.dev/valid-attachments`.
struct ValidAttachment {
    std::string container_id;
    std::string ifname;
    bool operator==(const ValidAttachment &) const = default;
};

// By subject, not by size: there is one of it.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct Config {
    Version cni_version;
    std::string name; // of the network
    std::string type;
    std::string ipam_type; // empty: addresses come in prevResult
    std::uint32_t ipam_timeout_s = 30;
    std::uint32_t pod_ranges = 0; // kIpv4, kIpv6: of these families host-local is to have the node's (pod_ranges.hpp)
    std::optional<Attachment> prev_result;
    std::optional<std::uint32_t> mtu;
    std::vector<Route> routes; // added to those of the IPAM result
    // true: unless the IPAM result or `routes` has one. None: if they name no route of its family at all.
    std::optional<bool> default_route;
    std::string host_interface_prefix = "cali";
    FastPath fast_path = FastPath::on;
    bool first_packet_direct = false; // a pod-to-pod connection's first packets take the fast path
    AttachBy attach = AttachBy::automatic;
    Limiter limiter = Limiter::automatic;
    bool anti_spoof = true;
    std::vector<Prefix> allowed_sources;   // beyond the endpoint's own addresses
    std::uint32_t allowed_ether_types = 0; // INTERFACE_ETHER_* of maps/abi/interface.h
    std::vector<std::string> uplinks;      // names and shell patterns; none: those of the default routes
    std::vector<Prefix> cluster_cidrs;     // pods of other nodes
    bool source_routing = true;            // what the container sends leaves by the network of its source address
    std::string uplink;                 // the network's egress route; with gateways and table empty: the node's routes
    std::vector<ip_addr> gateways;      // at most one of each family
    std::optional<std::uint32_t> table; // where the egress route is looked up; default: the main one
    bool ip_masq = false;
    std::uint32_t mark = PODLANE_MARK; // one bit
    std::uint32_t slow_path_mark = 0;  // conntrack mark of connections that stay on the slow path, under the mask
    std::uint32_t slow_path_mask = 0;
    std::uint32_t confirm_interval_ms = 1000;
    bool conntrack_liberal = true;              // set nf_conntrack_tcp_be_liberal, which the fast path of TCP needs
    bool expedited_rcu = true;                  // have grace periods expedited while a call waits for them
    std::string bpffs = PODLANE_ROOT;           // directory of the pins
    std::string state_dir = "/var/lib/podlane"; // of the records of attachments (loader/record.hpp)
    std::uint32_t max_endpoints = 4096;         // sizes of the maps; they count when the programs are loaded
    std::uint32_t max_paths = 65536;
    Log log;
    std::vector<Prefix> requested_ips; // capability `ips`, args.cni.ips, CNI_ARGS IP
    std::optional<Mac> requested_mac;  // capability `mac`, args.cni.mac, CNI_ARGS MAC
    std::optional<Bandwidth> bandwidth;
    std::string limit_group{};                       // that the pod's limits are guarantees in; empty: none
    LimitGroups limit_groups{};                      // of the network
    std::array<LimitedPrefixes, 2> limited_prefixes; // by enum limit_direction
    std::vector<ValidAttachment> valid_attachments;  // GC only
    Dns dns{};                                       // put into the result if the IPAM plugin gave none
    std::uint32_t identity = 0;                      // kAnnotations and the like
    Kubernetes kubernetes{};
    std::string node_name{};                                           // empty: $NODENAME, or the name of the host
    std::array<Permission, kPodSettings> pod_may{{{.granted = true}}}; // by PodSetting
    bool refuse_annotations = false; // those that set what the pod may not: an error, or ignored and logged
    std::map<std::string, std::string, std::less<>> pools{}; // fragments of `ipam` by name, as JSON
    // Settings made by annotations.
    std::vector<Prefix> pod_addresses{}; // requested from the IPAM plugin
    std::vector<Prefix> own_addresses{}; // instead of those of the IPAM plugin
    std::vector<std::string> pods_pools{};
    std::vector<std::string> calico_pools4{}, calico_pools6{}; // by calico-ipam's own names
    std::optional<std::uint32_t> pod_mtu{};
    std::optional<bool> pod_keeps_address{};
    KeepAddress keep_address = KeepAddress::none;
    std::uint32_t keep_address_s = 300;
    // Of the pod's namespace.
    bool allow_ip_forwarding = false;
    Labels sysctls{};
    std::optional<Dns> runtime_dns{};    // capability `dns`: goes before all others
    std::vector<Prefix> no_masquerade{}; // destinations
    std::uint32_t ip_families = 0;       // kIpv4, kIpv6; 0: what the lease has
    std::vector<std::string> group_sources{};
    std::vector<std::string> groups{}; // the container is a member of, each once: by the ADD, then by its record
    Isolation isolation{};
    bool egress_in_cluster = false; // the pod opens connections to cluster_cidrs only
    bool operator==(const Config &) const = default;
};

inline constexpr std::uint32_t kIpv4 = 1U << 0U;
inline constexpr std::uint32_t kIpv6 = 1U << 1U;

struct Request {
    Command command = Command::version;
    std::string container_id;
    std::string ifname;
    std::string netns;              // path; may be empty for DEL
    std::uint64_t netns_cookie = 0; // of the namespace that ADD found there; 0: unknown
    bool netns_override = false;
    std::vector<std::string> path; // CNI_PATH, split
    std::string args;              // CNI_ARGS as it came
    PodIdentity pod;
    Config config;
    std::string raw_config; // standard input as it came, to be handed to the IPAM plugin
    // The same with what annotations have set for the IPAM plugin, and CNI_ARGS with it; empty: as they came.
    std::string ipam_config{}, ipam_args{};
    // DEL and GC only: what was wrong, and left at its default. They remove what ADD made whatever the configuration
    // says by now.
    std::vector<std::string> ignored;
    std::vector<std::string> warnings; // what is accepted, and hardly meant
    bool unreadable = false;           // DEL only: standard input is no JSON object, config holds nothing but defaults
    std::optional<Error> incomplete{}; // DEL only: without CNI_PATH it fails with this, after all that it can remove
    bool is_of_no_add = false;         // DEL only: no ADD accepts the container ID or the interface's name
};

} // namespace podlane::cni
