#include "plugin/ipam.hpp"
#include "plugin/log.hpp"
#include "plugin/network.hpp"
#include "plugin/remove.hpp"
#include "plugin/verbs.hpp"

#include "maps/errors.hpp"
#include "maps/tables.hpp"

#include <algorithm>

namespace podlane {
namespace {

bool is_valid(const cni::Request &request, std::string_view container_id, std::string_view ifname) {
    return std::ranges::any_of(request.config.valid_attachments, [&](const cni::ValidAttachment &one) {
        return one.container_id == container_id && one.ifname == ifname;
    });
}

// What a DEL of the attachment would have asked for.
Result<void> collect(cni::Request request, std::string_view container_id, std::string_view ifname) {
    request.container_id = container_id;
    request.ifname = ifname;
    request.netns.clear();
    log(cni::Log::Level::info, "container " + request.container_id + ", " + request.ifname + " is gone: removing it");
    TRY(remove_attachment(request));
    return request.config.ipam_type.empty() ? Result<void>{} : ipam::remove(request);
}

// What the network's last DEL could not take away.
Result<void> drop_network(const cni::Request &request) {
    const Tables tables = TRY(Tables::open(request.config.bpffs, Access::if_present));
    return drop_network_if_unused(request.config.bpffs, tables, network_id(request.config.name));
}

} // namespace

Result<std::string> gc(const cni::Request &request) {
    Errors errors;
    const auto endpoints = open_endpoints(request.config.bpffs, Access::read_only);
    if (!endpoints && endpoints.error().code != ErrorCode::missing)
        return endpoints.error();
    if (endpoints)
        for (const auto &[key, value] : TRY(endpoints->entries())) {
            const std::string_view container_id = field_text(key.container_id);
            const std::string_view ifname = field_text(key.ifname);
            if (field_text(value.network_name) != request.config.name || is_valid(request, container_id, ifname))
                continue;
            if (auto collected = collect(request, container_id, ifname); !collected)
                errors.add(std::move(collected).error().context("removing container " + std::string(container_id)));
        }
    if (endpoints)
        errors.add(drop_network(request));
    if (!request.config.ipam_type.empty())
        errors.add(ipam::gc(request));
    TRY(std::move(errors).result());
    return std::string{};
}

} // namespace podlane
