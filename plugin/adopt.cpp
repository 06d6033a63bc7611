#include "plugin/adopt.hpp"

#include "loader/object.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/net/address.hpp"
#include "plugin/network.hpp"
#include "plugin/node.hpp"
#include "plugin/plan.hpp"
#include "plugin/siblings.hpp"
#include "plugin/history.hpp"

namespace podlane {
namespace {

constexpr const char *kVeth = "veth";

Result<ip_addr> link_local_of(net::Netlink &inside, std::uint32_t ifindex) {
    for (const net::Address &one : TRY(net::list_addresses(inside, ifindex)))
        if (!is_ipv4(one.prefix.addr) && is_link_local(one.prefix.addr))
            return one.prefix.addr;
    return ip_addr{};
}

// A bridge forwards frames by their MAC: past it, answers would take another way than questions.
std::uint32_t flags_for(const cni::Request &request, const net::Link &host, std::size_t address_count) {
    std::uint32_t flags = interface_flags_of(request.config, address_count);
    if (host.master) {
        flags &= ~static_cast<std::uint32_t>(INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK);
        log(cni::Log::Level::info, host.name + " is a bridge port: its packets take the host stack");
    }
    return flags;
}

Result<void> attach_program(const std::string &root, const char *name, std::uint32_t ifindex, Hook hook,
                            HookKind kind) {
    const Fd program = TRY(open_program(root, name));
    auto done = attach(ifindex, hook, kind, program.get());
    if (!done)
        return std::move(done).error().context(std::string("program ") + name);
    return {};
}

} // namespace

Result<net::Namespace> open_container(const cni::Request &request) {
    auto container = net::Namespace::open(request.netns);
    if (!container) {
        Error error = std::move(container).error().context("CNI_NETNS");
        error.code = ErrorCode::invalid_environment;
        return error;
    }
    return container;
}

Result<Adopted> find_pair(Sockets &sockets, const std::string &ifname) {
    auto pod_end = TRY(net::find_link(sockets.pod, ifname));
    if (!pod_end)
        return Error{ErrorCode::unknown_container, "there is no interface " + ifname + " in the container"};
    if (pod_end->kind != kVeth || !pod_end->peer_ifindex)
        return Error{ErrorCode::unsupported_field,
                     "interface " + ifname + " of kind \"" + pod_end->kind + "\" has no host end for the programs",
                     "chain Podlane after a plugin that makes a veth pair (ptp, bridge)"};
    auto host_end = TRY(net::find_link(sockets.host, *pod_end->peer_ifindex));
    if (!host_end || host_end->kind != kVeth || host_end->peer_ifindex != pod_end->ifindex)
        return Error{ErrorCode::missing, "the host end of " + ifname + " is not in the host's namespace"};
    return Adopted{*std::move(pod_end), *std::move(host_end)};
}

Result<void> attach_programs(const std::string &root, std::uint32_t ifindex, HookKind kind) {
    const Step step(STEP_PROGRAMS);
    TRY(attach_program(root, PODLANE_PROGRAM_FROM_POD, ifindex, Hook::ingress, kind));
    return attach_program(root, PODLANE_PROGRAM_TO_POD, ifindex, Hook::egress, kind);
}

Result<cni::Attachment> adopt_interface(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                                        const Tables &tables, const std::optional<Way> &way, Rollback &rollback) {
    const Lock lock = TRY(enter_network(request, tables, sockets.host, rollback));
    const Adopted pair = TRY(find_pair(sockets, request.ifname));
    EndpointFacts facts{.mode = ENDPOINT_AFTER_MAIN, .hook_kind = TRY(choose_hook_kind(request.config))};
    for (const cni::Address &one : addresses_of(*request.config.prev_result, request.ifname))
        facts.addresses.push_back(one.prefix.addr);
    if (facts.addresses.empty() || facts.addresses.size() > ENDPOINT_ADDRESSES)
        return Error{ErrorCode::invalid_network_config, "prevResult gives " + std::to_string(facts.addresses.size()) +
                                                            " addresses to " + request.ifname + ", 1 to " +
                                                            std::to_string(ENDPOINT_ADDRESSES) + " are supported"};
    facts.netns_inode = pod.inode();
    facts.ifindex = pair.host.ifindex;
    facts.pod_ifindex = pair.pod.ifindex;
    facts.host_ifname = pair.host.name;
    facts.pod_mac = pair.pod.mac;
    facts.host_mac = pair.host.mac;
    facts.mtu = pair.pod.mtu;
    const auto siblings = TRY(find_siblings(request, tables, sockets.pod, pod.inode()));
    facts.flags = flags_for(request, pair.host, facts.addresses.size()) | source_flags(request.config, siblings, way);
    facts.link_local = TRY(link_local_of(sockets.pod, pair.pod.ifindex));
    facts.masquerade = TRY(masquerade_of(request.config));
    const endpoint record = TRY(make_endpoint(request, facts));
    TRY(put_endpoint(tables, request, record, rollback));
    rollback.add("attaching the programs", [ifindex = record.ifindex]() -> Result<void> {
        TRY(detach(ifindex, Hook::ingress));
        TRY(detach(ifindex, Hook::egress));
        return {};
    });
    TRY(attach_programs(request.config.bpffs, record.ifindex, facts.hook_kind));
    if (record.masquerade != ENDPOINT_MASQUERADE_NONE)
        TRY(masquerade(facts.masquerade, request.config, prefixes_of(*request.config.prev_result, request.ifname),
                       rollback));
    TRY(put_addresses(tables, record, rollback));
    TRY(put_source_routes(TRY(wanted_source_routes(record, addresses_of(*request.config.prev_result, request.ifname),
                                                   siblings, way, tables, sockets.host)),
                          siblings, tables, rollback));
    return *request.config.prev_result;
}

} // namespace podlane
