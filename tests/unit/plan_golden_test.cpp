// SPDX-License-Identifier: MIT
// All that an attachment consists of, as ADD applies it and prints it in its log. tests/unit/data/plan_MODE.txt has the
// whole of a plain one, then what each key of a configuration changes. PODLANE_WRITE_MESSAGES=1 rewrites the files.
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/plan_json.hpp"
#include "tests/harness/golden.hpp"

namespace podlane {
namespace {

constexpr std::uint32_t kIfindex = 7, kPodIfindex = 2, kPeerIfindex = 9, kUplinkIfindex = 3;
constexpr std::uint32_t kNodeNetns = 4026531840, kPodNetns = 4026532100;

struct Case {
    std::string name;
    std::string keys; // of the configuration
    bool has_uplink = false;
    bool has_peer = false;
};

const std::vector<Case> kCases{
    {"nothing more", ""},
    {"ipMasq", R"("ipMasq": true, "clusterCIDRs": ["198.18.0.0/15", "2001:db8::/48"])"},
    {"limits",
     R"("runtimeConfig": {"bandwidth": {"ingressRate": 8000000, "ingressBurst": 80000,
        "egressRate": 4000000, "egressBurst": 40000, "unshapedSubnets": ["198.18.0.0/15"]}})"},
    {"an egress limit", R"("egressRate": 4000000, "egressBurst": 40000)"},
    {"uplinks by name", R"("uplinks": ["eth1", "bond*"], "mtu": 1400)"},
    {"an egress route", R"("uplink": "lan0", "gateway": ["203.0.113.1"])", true},
    {"source routing", "", false, true},
    {"allowed sources, no fast path", R"("allowedSources": ["192.0.2.0/24"], "fastPath": "off", "attach": "clsact")"},
    {"isolation", R"("groups": ["name:a", "network"], "isolation": "group", "firstPacket": "direct",
        "allow": [["a", "b"], ["c", "d"]], "outside": "allow",
        "groupCIDRs": {"b": ["198.18.64.0/20"], "c": ["198.18.80.0/20"]})"},
    {"egress", R"("egress": "cluster", "clusterCIDRs": ["198.18.0.0/15"], "firstPacket": "direct")"},
    {"egress of an isolated pod", R"("egress": "cluster", "clusterCIDRs": ["198.18.0.0/15"], "isolation": "network")"},
    {"routes, no default route",
     R"("defaultRoute": false, "routes": [{"dst": "192.0.2.0/24", "priority": 7, "table": 133, "mtu": 1300}])"},
};

constexpr const char *kAddresses = R"("ips": [{"address": "198.18.1.2/24", "gateway": "198.18.1.1"%s},
    {"address": "2001:db8:1::2/64"%s}])";

template <typename T> T value_of(Result<T> result) {
    if (!result)
        throw std::runtime_error(result.error().message);
    return std::move(result).value();
}

std::string addresses_text(const std::string &more) {
    std::string text = kAddresses;
    for (std::size_t at = text.find("%s"); at != std::string::npos; at = text.find("%s"))
        text.replace(at, 2, more);
    return text;
}

std::string previous(endpoint_mode mode) {
    if (mode == ENDPOINT_MAIN)
        return R"("ipam": {"type": "host-local"})";
    if (mode == ENDPOINT_AFTER_IPAM)
        return R"("prevResult": {"cniVersion": "1.1.0", )" + addresses_text("") + "}";
    return R"("prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "veth1"},
        {"name": "eth0", "sandbox": "/run/netns/demo"}], )" +
           addresses_text(R"(, "interface": 1)") + "}";
}

cni::Request request_of(endpoint_mode mode, const Case &of) {
    return value_of(cni::parse_request({{"CNI_COMMAND", "ADD"},
                                        {"CNI_CONTAINERID", "demo"},
                                        {"CNI_IFNAME", "eth0"},
                                        {"CNI_NETNS", "/run/netns/demo"},
                                        {"CNI_PATH", "/opt/cni/bin"}},
                                       R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane", )" +
                                           previous(mode) + (of.keys.empty() ? "" : ", ") + of.keys + "}"));
}

NodeFacts facts_of(const cni::Config &config, const Case &of) {
    NodeFacts facts{.mtu = 1500};
    facts.hook_kind = config.attach == cni::AttachBy::clsact ? HookKind::clsact : HookKind::tcx;
    if (config.ip_masq)
        facts.masquerade = ENDPOINT_MASQUERADE_NFTABLES;
    if (of.has_uplink) {
        net::Link uplink;
        uplink.ifindex = kUplinkIfindex;
        uplink.name = "lan0";
        facts.egress_route = EgressRoute{uplink, config.gateways, config.table};
        facts.flags |= INTERFACE_EGRESS_ROUTE;
    }
    if (of.has_peer)
        facts.flags |= INTERFACE_PEERS;
    return facts;
}

source_route source_of(std::uint32_t owner, const ip_addr &addr) {
    source_route route{};
    route.ifindex = owner;
    route.source = addr;
    return route;
}

SourceEntries sources_of(const Case &of, const Plan &plan) {
    SourceEntries entries;
    std::vector<source_route> all;
    for (const ip_addr &addr : plan.addresses) {
        all.push_back(source_of(kIfindex, addr));
        all.back().uplink = plan.uplink;
        if (of.has_uplink)
            entries.routes.push_back({{kIfindex, addr}, all.back()});
    }
    if (!of.has_peer)
        return entries;
    all.push_back(source_of(kPeerIfindex, parse_ip("198.18.2.2").value()));
    add_entries_at(kIfindex, all, entries);
    add_entries_at(kPeerIfindex, all, entries);
    return entries;
}

Plan plan_of(endpoint_mode mode, const cni::Request &request, const NodeFacts &facts) {
    if (mode == ENDPOINT_AFTER_MAIN)
        return value_of(make_plan_beside(request,
                                         {.host_ifname = "veth1",
                                          .ifindex = kIfindex,
                                          .pod_ifindex = kPodIfindex,
                                          .pod_mac = value_of(parse_mac("02:00:00:00:00:02")),
                                          .router_mac = value_of(parse_mac("02:00:00:00:00:01")),
                                          .mtu = 1500},
                                         facts));
    const cni::Attachment lease =
        mode == ENDPOINT_MAIN
            ? value_of(cni::parse_attachment("{\"cniVersion\": \"1.1.0\", " + addresses_text("") + "}"))
            : *request.config.prev_result;
    Plan plan = value_of(make_plan(request, lease, facts));
    plan.ifindex = kIfindex;
    plan.pod_ifindex = kPodIfindex;
    return plan;
}

std::string text_of(endpoint_mode mode, const Case &of) {
    const cni::Request request = request_of(mode, of);
    Plan plan = plan_of(mode, request, facts_of(request.config, of));
    plan.netns_inode = kPodNetns;
    const endpoint record = value_of(make_endpoint(request, plan));
    return to_json(plan, entries_of(request.config, record, kNodeNetns), sources_of(of, plan));
}

// The first case is whole, the others are unified differences from it: together they say each line of each plan.
void expect_plans(endpoint_mode mode, const std::string &file) {
    const std::string plain = text_of(mode, kCases[0]);
    std::string all = "# " + kCases[0].name + "\n" + plain + "\n";
    for (std::size_t i = 1; i < kCases.size(); ++i)
        all += "# " + kCases[i].name + "\n" + test::difference(plain, text_of(mode, kCases[i]));
    test::expect_as_in("tests/unit/data/" + file, all);
}

TEST(PlanAsJson, HasEachLineOfItsFileAsTheMainPlugin) { expect_plans(ENDPOINT_MAIN, "plan_main.txt"); }
TEST(PlanAsJson, HasEachLineOfItsFileAfterAnIpamPlugin) { expect_plans(ENDPOINT_AFTER_IPAM, "plan_after_ipam.txt"); }
TEST(PlanAsJson, HasEachLineOfItsFileAfterAMainPlugin) { expect_plans(ENDPOINT_AFTER_MAIN, "plan_after_main.txt"); }

} // namespace
} // namespace podlane
