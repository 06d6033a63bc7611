// SPDX-License-Identifier: MIT
// Behind networks that stay as they are: by a file beside their list, and on a veth that another daemon's plugin made;
// and what meta-plugins keep beside an attachment.
#include "tests/netns/verbs.hpp"

#include <filesystem>
#include <fstream>

namespace podlane::test {
namespace {

namespace fs = std::filesystem;

class ChainedTest : public VerbsTest {
  protected:
    ChainedTest() { fs::create_directories(conf() + "/cbr0"); }
    [[nodiscard]] std::string conf() const { return node_.dir() + "/net.d"; }

    // As libcni 1.3 makes the list of the network cbr0 (NetworkConfFromFile): the plugins of the list, then each .conf
    // in the directory of the network's name, in the order of names. Debian 12 has no libcni of that version.
    [[nodiscard]] std::vector<Json> loaded() const {
        const Json list = Json::parse(read_file(conf() + "/10-theirs.conflist"));
        std::vector<Json> plugins = list.at("plugins");
        std::vector<std::string> files;
        if (!list.value("loadOnlyInlinedPlugins", false))
            for (const auto &one : fs::directory_iterator(conf() + "/" + list.at("name").get<std::string>()))
                if (one.path().extension() == ".conf")
                    files.push_back(one.path());
        std::ranges::sort(files);
        for (const std::string &file : files)
            plugins.push_back(Json::parse(read_file(file)));
        return plugins;
    }
    [[nodiscard]] Json main_plugin(const std::string &type, const Json &keys = Json::object()) const {
        Json config = {{"type", type}, {"ipam", node_.ipam()}};
        config["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        config.update(keys);
        return config;
    }
    // Two pods of the list: recorded, their packets seen by Podlane's programs, checked, and gone without a trace.
    // `failing`: a plugin whose own CHECK fails, with Podlane or without.
    void expect_two_pods(Chain &chain, const std::string &failing = {}) {
        std::vector<Pod> pods;
        for (int i = 0; i < 2; ++i) {
            const auto container = node_.container();
            const Reply added = chain.add(*container);
            ASSERT_THAT(added, succeeds());
            pods.push_back(look_at(container, added.json));
            EXPECT_THAT(chain.check(*container, failing), succeeds());
        }
        ASSERT_EQ(node_.podlanectl_json("endpoint list").size(), 2U);
        for (const Pod &pod : pods)
            for (const Hook hook : {Hook::ingress, Hook::egress})
                EXPECT_EQ(programs(pod.ifindex, hook).size(), 1U);
        EXPECT_TRUE(ping(pods[0].ns(), pods[1].text4()));
        EXPECT_TRUE(ping(pods[1].ns(), pods[0].text4()));
        for (const Pod &pod : pods)
            EXPECT_THAT(chain.del(*pod.container), succeeds());
        EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
    }
};

TEST_F(ChainedTest, OneFileBesideAListChainsPodlane) {
    std::ofstream(conf() + "/cbr0/podlane.conf") << Json{{"type", "podlane"}, {"bpffs", node_.bpffs()}};
    std::ofstream(conf() + "/cbr0/podlane.conf.bak") << "{}";
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}};
    const Json ptp = main_plugin("ptp");
    const Json bridge = main_plugin("bridge", {{"bridge", "br0"}, {"isGateway", true}});
    // The configuration that flannel's plugin hands to the bridge plugin by default.
    Json of_flannel =
        main_plugin("bridge", {{"bridge", "cni0"}, {"hairpinMode", true}, {"isDefaultGateway", true}, {"mtu", 1370}});
    of_flannel["ipam"]["routes"] = {{{"dst", "198.18.0.0/16"}}};
    for (const Json &first : {ptp, bridge, of_flannel})
        for (const char *version : {"0.4.0", "1.0.0"}) {
            SCOPED_TRACE(first.dump() + version);
            const Json list = {{"cniVersion", version}, {"name", "cbr0"}, {"plugins", {first, portmap}}};
            std::ofstream(conf() + "/10-theirs.conflist") << list;
            const std::vector<Json> plugins = loaded();
            ASSERT_EQ(plugins.size(), 3U);
            EXPECT_EQ(plugins.back().at("type"), "podlane");
            Chain chain(node_, plugins, version, "cbr0");
            // Debian's bridge adds the lease's route by the gateway, and then looks for one without.
            expect_two_pods(chain, first == of_flannel ? "bridge" : "");
            EXPECT_THAT(node_.leased(), IsEmpty());
        }
}

// The plugin of a daemon: a veth with an address of the daemon's, routed by the host.
TEST_F(ChainedTest, TheVethOfAnotherDaemonIsTakenOver) {
    node_.put_plugin("theirs", R"(#!/bin/sh
set -e
veth=lxc$(echo "$CNI_CONTAINERID" | md5sum | cut -c1-8)
in_pod() { nsenter --net="$CNI_NETNS" "$@"; }
case $CNI_COMMAND in
ADD)
    number=$(($(ip -o link show type veth | grep lxc | wc -l) + 5))
    ip link add "$veth" type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"
    ip link set "$veth" up
    in_pod ip addr add 198.18.40.$number/32 dev "$CNI_IFNAME"
    in_pod ip link set "$CNI_IFNAME" up
    in_pod ip route add 169.254.40.1 dev "$CNI_IFNAME"
    in_pod ip route add default via 169.254.40.1 dev "$CNI_IFNAME"
    mac=$(ip -o link show "$veth" | sed 's/.*ether \([0-9a-f:]*\).*/\1/')
    in_pod ip neigh add 169.254.40.1 lladdr "$mac" dev "$CNI_IFNAME" nud permanent
    ip route add 198.18.40.$number dev "$veth"
    echo "{\"cniVersion\": \"1.0.0\", $(sed "s/@veth/$veth/; s,@netns,$CNI_NETNS," ")" +
                                   node_.dir() +
                                   R"(/interfaces") \"ips\": [{\"address\": \"198.18.40.$number/32\"}]}" ;;
DEL) ip link del "$veth" 2>/dev/null || true ;;
CHECK) ip link show "$veth" >/dev/null ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
)");
    const std::string before = node_.state();
    const auto chain_with = [&](const std::string &interfaces) {
        std::ofstream(node_.dir() + "/interfaces") << interfaces << "\n";
        return Chain(node_, {{{"type", "theirs"}}, {{"type", "podlane"}, {"bpffs", node_.bpffs()}}});
    };
    // Plugins differ in which ends they name: Calico's names the host's.
    for (const std::string interfaces :
         {R"("interfaces": [{"name": "@veth"}, {"name": "eth0", "sandbox": "@netns"}],)",
          R"("interfaces": [{"name": "eth0", "sandbox": "@netns"}],)", R"("interfaces": [{"name": "@veth"}],)"}) {
        SCOPED_TRACE(interfaces);
        Chain chain = chain_with(interfaces);
        expect_two_pods(chain);
        EXPECT_EQ(node_.state(), before);
    }
    // None: this is what an IPAM plugin says, and the interface would be made.
    Chain chain = chain_with("");
    const auto container = node_.container();
    EXPECT_THAT(chain.add(*container), fails_with(104, {"has an interface eth0 already"}));
    EXPECT_THAT(chain.del(*container), succeeds());
    EXPECT_EQ(node_.state(), before);
}

// multus 4: the file by which it hands a device's facts to the pod, its path in runtimeConfig, the device in the
// configuration.
TEST_F(ChainedTest, TheDeviceInfoOfMultusIsLeftAlone) {
    const std::string directory = node_.dir() + "/devinfo";
    const std::string file = directory + "/pods-0001-net1";
    fs::create_directory(directory);
    const std::string text = R"({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:01:00.1"}})";
    std::ofstream(file) << text;
    const std::string listed = node_.run("ls -lA --full-time " + directory);
    for (const char *version : {"0.3.1", "0.4.0", "1.0.0", "1.1.0"}) {
        SCOPED_TRACE(version);
        Json keys = {{"cniVersion", version},
                     {"deviceID", "0000:01:00.1"},
                     {"pciBusID", "0000:01:00.1"},
                     {"resourceName", "example.org/nic"},
                     {"capabilities", {{"CNIDeviceInfoFile", true}, {"deviceID", true}}},
                     {"runtimeConfig", {{"CNIDeviceInfoFile", file}, {"deviceID", "0000:01:00.1"}}}};
        const Pod pod = make(keys);
        if (std::string_view(version) != "0.3.1") {
            EXPECT_THAT(check(pod, keys), succeeds());
        }
        EXPECT_THAT(del(*pod.container, keys), succeeds());
        EXPECT_EQ(node_.run("ls -lA --full-time " + directory), listed);
        if (std::string_view(version) == "1.1.0")
            continue; // Debian's ptp does not speak it
        Json chained = {{"type", "podlane"}, {"bpffs", node_.bpffs()}};
        chained.update(keys);
        Chain chain(node_, {main_plugin("ptp"), chained}, version);
        const auto container = node_.container();
        ASSERT_THAT(chain.add(*container), succeeds());
        EXPECT_THAT(chain.del(*container), succeeds());
        EXPECT_EQ(node_.run("ls -lA --full-time " + directory), listed);
        EXPECT_EQ(read_file(file), text);
    }
}

} // namespace
} // namespace podlane::test
