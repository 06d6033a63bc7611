// SPDX-License-Identifier: MIT
// The plan that an ADD prints in its log at level debug, compared with what the kernel and the maps have afterwards:
// tests/unit/plan_golden_test.cpp compares the same text with files.
#include "tests/harness/chain.hpp"
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using Texts = std::set<std::string>;

class PlanTest : public VerbsTest {
  protected:
    [[nodiscard]] Json logged() const { return {{"file", log_file()}, {"level", "debug"}}; }
    [[nodiscard]] std::string log_file() const { return node_.dir() + "/plugin.log"; }

    [[nodiscard]] Json plan() const {
        std::ifstream file(log_file());
        const std::string mark = ": plan: ";
        for (std::string line; std::getline(file, line);)
            if (const std::size_t at = line.find(mark); at != std::string::npos)
                return Json::parse(line.substr(at + mark.size()));
        throw std::runtime_error("no plan in " + log_file());
    }

    static Texts first_words(const Json &list) {
        Texts all;
        for (const Json &one : list) {
            const std::string text = one.get<std::string>();
            all.insert(text.substr(0, text.find(' ')));
        }
        return all;
    }
    static Texts keys(const Json &object) {
        Texts all;
        for (const auto &[key, value] : object.items())
            all.insert(key);
        return all;
    }
    static Texts addresses(const net::Namespace &where, const std::string &ifname) {
        Texts all;
        const Json links = ip_json(where, "addr show dev " + ifname);
        for (const Json &one : links[0]["addr_info"])
            all.insert(one["local"].get<std::string>() + "/" + std::to_string(one["prefixlen"].get<int>()));
        return all;
    }
    // Without what the kernel adds for each address and for multicast.
    static Texts routes(const net::Namespace &where, const std::string &ifname) {
        Texts all;
        for (const std::string family : {"-4", "-6"})
            for (const Json &one : ip_json(where, family + " route show dev " + ifname)) {
                std::string to = one["dst"];
                to = to == "default" ? (family == "-4" ? "0.0.0.0/0" : "::/0") : to;
                if (one.value("protocol", "") != "kernel")
                    all.insert(to.find('/') == std::string::npos ? to + (family == "-4" ? "/32" : "/128") : to);
            }
        return all;
    }
    static Texts neighbours(const net::Namespace &where, const std::string &ifname) {
        Texts all;
        for (const Json &one : ip_json(where, "neigh show nud permanent dev " + ifname))
            all.insert(one["dst"].get<std::string>());
        return all;
    }
    void expect_programs_and_entries(const Json &plan, const endpoint &entry) const {
        for (const Hook hook : {Hook::ingress, Hook::egress}) {
            const auto there = programs(entry.ifindex, hook);
            ASSERT_EQ(there.size(), 1U);
            EXPECT_EQ(there[0].name, plan["programs"][hook == Hook::ingress ? "ingress" : "egress"]);
            EXPECT_EQ(there[0].kind == HookKind::tcx ? "tcx" : "clsact", plan["programs"]["by"]);
        }
        Texts known;
        for (const auto &[key, value] : require(require(open_addresses(node_.bpffs(), Access::read_only)).entries()))
            if (value.ifindex == entry.ifindex)
                known.insert(to_string(key.addr));
        EXPECT_EQ(known, first_words(plan["entries"][PODLANE_MAP_ADDRESSES]));
        EXPECT_EQ(require(require(open_senders(node_.bpffs(), Access::read_only)).entries()).size(),
                  plan["entries"][PODLANE_MAP_SENDERS].size());
        EXPECT_EQ(require(require(open_bandwidths(node_.bpffs(), Access::read_only)).entries()).size(),
                  plan["entries"].count(PODLANE_MAP_BANDWIDTHS));
        EXPECT_EQ(require(require(open_allowed_sources(node_.bpffs(), Access::read_only)).entries()).size(),
                  plan["entries"].value(PODLANE_MAP_SOURCES, Json::array()).size());
        EXPECT_EQ(require(require(open_networks(node_.bpffs(), Access::read_only)).keys())[0],
                  plan["network"]["number"].get<std::uint32_t>());
    }
};

TEST_F(PlanTest, OfAnInterfaceOfItsOwnIsWhatTheKernelHas) {
    const Pod made = make({{"log", logged()},
                           {"ipMasq", true},
                           {"allowedSources", {"192.0.2.0/24"}},
                           {"routes", {{{"dst", "192.0.2.0/24"}}, {{"dst", "0.0.0.0/0"}}}},
                           {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 80000}}}}}});
    const Json plan = this->plan();
    const net::Namespace &pod = made.container->ns();
    EXPECT_EQ(plan["mode"], "main");
    EXPECT_EQ(plan["links"]["host"]["name"], made.host_ifname);
    EXPECT_EQ(plan["links"]["host"]["ifindex"], made.ifindex);
    EXPECT_EQ(plan["links"]["host"]["alias"], host_link(made)["ifalias"]);
    EXPECT_EQ(plan["links"]["host"]["mtu"], host_link(made)["mtu"]);
    EXPECT_EQ(plan["links"]["container"]["mac"], find(ip_json(pod, "link"), "ifname", "eth0")["address"]);
    EXPECT_EQ(first_words(plan["container"]["addresses"]), addresses(pod, "eth0"));
    EXPECT_EQ(first_words(plan["container"]["routes"]), routes(pod, "eth0"));
    EXPECT_EQ(keys(plan["container"]["neighbours"]), neighbours(pod, "eth0"));
    EXPECT_EQ(first_words(plan["node"]["addresses"]), addresses(node_.ns(), made.host_ifname));
    EXPECT_EQ(first_words(plan["node"]["routes"]), routes(node_.ns(), made.host_ifname));
    EXPECT_EQ(keys(plan["node"]["neighbours"]), neighbours(node_.ns(), made.host_ifname));
    for (const auto &[path, value] : plan["node"]["settings"].items())
        EXPECT_EQ(sysctl(node_.ns(), path), value) << path;
    for (const auto &[path, value] : plan["container"]["settings"].items())
        EXPECT_EQ(sysctl(pod, path), value) << path;
    EXPECT_EQ(plan.value("qdisc", "noqueue"), host_link(made)["qdisc"]);
    EXPECT_EQ(plan["nat"]["by"] == "nftables",
              node_.run("nft list tables").find("podlane-" + plan["network"]["name"].get<std::string>()) !=
                  std::string::npos);
    EXPECT_EQ(plan["lease"]["of"], "host-local");
    expect_programs_and_entries(plan, record(made));
}

// The rest of what level debug says, in order: who was asked for what, how long it took, and the answer.
TEST_F(PlanTest, TheLogHasRequestAnswersStepsAndResultButNoSecrets) {
    Json keys = {{"log", logged()}, {"ipam", node_.ipam()}};
    keys["ipam"]["apiToken"] = "s3cret-1";
    keys["ipam"]["endpoint"] = "https://user:s3cret-2@192.0.2.1/";
    keys["runtimeConfig"] = {{"io.kubernetes.cri.pod-annotations", {{"example.org/password", "s3cret-3"}}}};
    const auto container = node_.container();
    const Reply reply = succeeded(add(*container, keys, {{"CNI_ARGS", "IgnoreUnknown=1;DB_PASSWORD=s3cret-4;A=b"}}));
    EXPECT_THAT(del(*container, keys), succeeds());
    const std::string text = node_.run("cat " + log_file());
    std::string ip = reply.json["ips"][0]["address"];
    ip.erase(ip.find('/')); // the IPAM plugin's has another length
    std::size_t at = 0;
    const std::vector<std::string> expected = {"ADD container=",
                                               ": request: ",
                                               "CNI_ARGS=IgnoreUnknown=1;DB_PASSWORD",
                                               ": configuration: {",
                                               "\"apiToken\":\"(masked)\"",
                                               "https://(masked)@192.0.2.1/",
                                               "host-local ADD: ",
                                               ip,
                                               ": step ipam: ",
                                               ": step link: ",
                                               ": plan: {",
                                               ": step programs: ",
                                               ": result: {",
                                               ip,
                                               ": done",
                                               "DEL container=",
                                               "host-local DEL: ",
                                               ": step ipam: ",
                                               ": done"};
    for (const std::string &sentence : expected) {
        at = text.find(sentence, at);
        ASSERT_NE(at, std::string::npos) << sentence << " in " << text;
    }
    EXPECT_THAT(text, testing::ContainsRegex("step ipam: [0-9]+\\.[0-9][0-9][0-9] ms"));
    EXPECT_EQ(text.find("s3cret"), std::string::npos) << text;
}

TEST_F(PlanTest, OfAnAdoptedInterfaceCreatesNone) {
    const auto container = node_.container();
    Json podlane = node_.config({{"log", logged()}});
    podlane.erase("ipam");
    const Json ipam = node_.config()["ipam"];
    Chain chain(node_, {{{"type", "ptp"}, {"ipam", ipam}}, podlane});
    const Reply reply = succeeded(chain.add(*container));
    const Json plan = this->plan();
    EXPECT_EQ(plan["mode"], "after-main");
    EXPECT_EQ(plan["links"]["created"], false);
    EXPECT_EQ(plan["links"]["host"]["name"], reply.json["interfaces"][0]["name"]);
    for (const char *what : {"settings", "addresses", "routes", "neighbours"})
        EXPECT_TRUE(plan["node"][what].empty() && plan["container"][what].empty()) << what;
    EXPECT_FALSE(plan.contains("lease")) << "it is ptp's";
    Pod made;
    made.container = container;
    expect_programs_and_entries(plan, record(made));
    EXPECT_EQ(chain.del(*container).rc, 0);
}

} // namespace
} // namespace podlane::test
