// SPDX-License-Identifier: MIT
#include "plugin/state.hpp"

#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "maps/clock.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/config.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/kubernetes.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/cni/version.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace podlane {
std::string node_name(const cni::Config &config) {
    if (!config.node_name.empty())
        return config.node_name;
    if (const char *const given = std::getenv("NODENAME"); given != nullptr && *given != '\0')
        return printable(std::string_view(given).substr(0, cni::kLongestDnsName));
    std::array<char, HOST_NAME_MAX + 1> name{};
    return gethostname(name.data(), HOST_NAME_MAX) == 0 ? printable(name.data()) : std::string();
}

AttachmentRecords records_of(const cni::Config &config) { return {config.state_dir, config.bpffs}; }

std::vector<std::string> state_directories_of(const cni::Config &config) {
    std::vector<std::string> all{config.state_dir};
    if (config.state_dir != kStateDirectory)
        all.emplace_back(kStateDirectory);
    return all;
}

Result<AttachmentRecord> record_of(const cni::Request &request) {
    AttachmentRecord record;
    record.container_id = request.container_id;
    record.ifname = request.ifname;
    record.network = request.config.name;
    record.root = request.config.bpffs;
    record.boot_id = TRY(boot_id());
    record.created_ns = realtime_ns();
    record.created_boottime_ns = boottime_ns();
    record.node_netns = TRY(net::own_netns());
    record.netns = request.netns;
    record.netns_cookie = request.netns_cookie;
    record.args = request.args;
    record.path = join(request.path, ":");
    record.config = request.raw_config;
    record.node_name = node_name(request.config);
    record.has_egress_rules = request.config.egress_in_cluster;
    record.labels = lines_of(request.pod.labels);
    record.annotations = lines_of(request.pod.annotations);
    record.groups = group_lines(request.config.groups);
    record.ipam_config = request.ipam_config;
    record.ipam_args = request.ipam_args;
    return record;
}

namespace {

Result<bool> is_recorded(const cni::Request &request) {
    const auto record = TRY(records_of(request.config).find(request.container_id, request.ifname));
    return record && !record->only_lease;
}

Error removed_by_del(const cni::Request &request) {
    return {ErrorCode::try_again_later,
            "a DEL has removed container " + request.container_id + ", " + request.ifname +
                " while this ADD was going on",
            "nothing is left of it: repeat the ADD if the pod is still to start"};
}

} // namespace

Result<void> refuse_removed(const cni::Request &request, const Tables &tables) {
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    const bool is_there = TRY(is_recorded(request)) && TRY(tables.endpoints.find(key));
    return is_there ? Result<void>{} : removed_by_del(request);
}

Result<void> update_record(const cni::Request &request, const endpoint &entry, const cni::Attachment *lease,
                           std::uint32_t uplink) {
    const auto learned = [&](AttachmentRecord record) {
        record.container_id = request.container_id;
        record.ifname = request.ifname;
        record.created_ns = realtime_ns();
        record.created_boottime_ns = boottime_ns();
        record.entry = entry;
        record.uplink = uplink;
        if (lease != nullptr)
            record.lease = cni::to_json(*lease, cni::kNewestVersion);
        return record;
    };
    const AttachmentRecords records = records_of(request.config);
    // A lease that is to be held is to be known after a power cut, too: only a whole file is written at once.
    const bool is_whole = lease != nullptr && keeps_address(request);
    if (!is_whole && TRY(records.add(learned({}))))
        return {};
    if (!TRY(is_recorded(request)))
        return removed_by_del(request);
    return records.write(learned(TRY(record_of(request))), lease != nullptr ? Begin::at_once : Begin::later);
}

// By the container's interfaces: the node may have records of a thousand others.
Result<std::vector<AttachmentRecord>> records_of_others(const cni::Request &request, net::Netlink &pod) {
    std::vector<AttachmentRecord> others;
    for (const net::Link &link : TRY(net::list_links(pod)))
        if (link.name != request.ifname && link.name != "lo")
            if (auto record = TRY(records_of(request.config).find(request.container_id, link.name));
                record && !record->only_lease)
                others.push_back(*std::move(record));
    return others;
}

Result<bool> may_forward(const cni::Request &request, net::Netlink &pod) {
    if (request.config.allow_ip_forwarding)
        return true;
    for (const AttachmentRecord &other : TRY(records_of_others(request, pod)))
        if (const auto made = recorded_request(other); made && made->config.allow_ip_forwarding)
            return true;
    return false;
}

Result<std::optional<AttachmentRecord>> find_record(const cni::Request &request) {
    if (auto record = TRY(records_of(request.config).find(request.container_id, request.ifname)))
        return record;
    return find_record_anywhere(request.config.state_dir, request.container_id, request.ifname);
}

Result<bool> is_on_record(const cni::Request &request) {
    if (TRY(records_of(request.config).find(request.container_id, request.ifname)))
        return true;
    const auto elsewhere = find_record_anywhere(request.config.state_dir, request.container_id, request.ifname);
    if (!elsewhere)
        log(cni::Log::Level::warning, "looking for an earlier record: " + elsewhere.error().message);
    return elsewhere && *elsewhere;
}

Result<bool> is_of_this_boot(const AttachmentRecord &record) { return record.boot_id == TRY(boot_id()); }

std::string group_lines(const std::vector<std::string> &groups) {
    std::string lines;
    for (const std::string &group : groups)
        lines += group + "\n";
    return lines;
}

std::vector<std::string> groups_in(const AttachmentRecord &record) { return split<std::string>(record.groups, "\n"); }

Result<cni::Request> recorded_request(const AttachmentRecord &record) {
    cni::Request request = TRY(cni::parse_recorded({{"CNI_COMMAND", "ADD"},
                                                    {"CNI_CONTAINERID", record.container_id},
                                                    {"CNI_IFNAME", record.ifname},
                                                    {"CNI_NETNS", record.netns},
                                                    {"CNI_PATH", record.path},
                                                    {"CNI_ARGS", record.args}},
                                                   record.config));
    request.netns_cookie = record.netns_cookie;
    request.config.bpffs = record.root;
    request.config.groups = groups_in(record);
    return request;
}

Result<cni::Attachment> recorded_lease(const cni::Request &request, const AttachmentRecord &record) {
    auto lease = request.config.prev_result ? *request.config.prev_result : TRY(cni::parse_attachment(record.lease));
    TRY(keep_families(request.config.ip_families, lease));
    return lease;
}

Result<void> keep_families(std::uint32_t families, cni::Attachment &lease) {
    const auto family_of = [](const ip_addr &addr) { return is_ipv4(addr) ? cni::kIpv4 : cni::kIpv6; };
    if (families == 0)
        return {};
    std::uint32_t found = 0;
    for (const cni::Address &one : lease.addresses)
        found |= family_of(one.prefix.addr);
    if ((found & families) != families)
        return Error{ErrorCode::ipam,
                     std::string("the lease has no ") + ((~found & families & cni::kIpv4) != 0 ? "IPv4" : "IPv6") +
                         " address, and \"ipFamilies\" requests one",
                     "have \"ipam\" give one, or remove the family from \"ipFamilies\""};
    std::erase_if(lease.addresses,
                  [&](const cni::Address &one) { return (family_of(one.prefix.addr) & families) == 0; });
    return {};
}

void complete(cni::Request &request, const AttachmentRecord &record) {
    cni::Config &config = request.config;
    request.netns_cookie = record.netns_cookie;
    config.bpffs = record.root;
    if (!record.state_directory.empty())
        config.state_dir = record.state_directory;
    if (config.name.empty())
        config.name = record.network;
    request.args = record.args;
    if (auto path = cni::split_path(record.path); path && request.path.empty())
        request.path = std::move(path).value();
    if (request.unreadable)
        request.raw_config = record.config;
}

cni::Request request_of(const AttachmentRecord &record, const std::string &state_directory) {
    cni::Request request;
    request.command = cni::Command::del;
    request.container_id = record.container_id;
    request.ifname = record.ifname;
    request.config.cni_version = cni::version_of(record.config).value_or(cni::kNewestVersion);
    request.config.state_dir = state_directory;
    complete(request, record);
    return request;
}

Result<std::vector<cni::Request>> requests_with_lease(const cni::Request &request,
                                                      const std::optional<AttachmentRecord> &record) {
    std::vector<cni::Request> all;
    const auto recorded = record ? cni::find_ipam(record->config) : std::nullopt;
    const auto given = request.unreadable ? std::nullopt : cni::find_ipam(request.raw_config);
    if (recorded) {
        cni::Request as_added = request;
        as_added.raw_config = record->config;
        as_added.ipam_config = record->ipam_config;
        as_added.ipam_args = record->ipam_args;
        as_added.config.ipam_type = recorded->type;
        as_added.config.cni_version = cni::version_of(record->config).value_or(request.config.cni_version);
        const auto made = recorded_request(*record);
        const std::uint32_t timeout_s = made ? made->config.ipam_timeout_s : as_added.config.ipam_timeout_s;
        // An administrator may have given the plugin more time since.
        as_added.config.ipam_timeout_s = given ? std::max(timeout_s, request.config.ipam_timeout_s) : timeout_s;
        all.push_back(std::move(as_added));
        // It may not be where it was at the ADD.
        if (auto path = cni::split_path(record->path))
            all.back().path.insert(all.back().path.end(), path->begin(), path->end());
    }
    if (given && !request.config.ipam_type.empty() && (!recorded || recorded->text != given->text))
        all.push_back(request);
    std::erase_if(all, [](const cni::Request &one) { // each ADD refuses them
        return one.config.ipam_type == "dhcp" || cni::names_itself_for_ipam(one.config);
    });
    return all;
}

} // namespace podlane
