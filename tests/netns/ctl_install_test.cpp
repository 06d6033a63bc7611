// SPDX-License-Identifier: MIT
// podlanectl install: a network that works, from what is known of the node, and no file of others is touched.
#include "tests/netns/ctl_node.hpp"

namespace podlane::test {
namespace {

TEST_F(NodeTest, InstallWritesWhatARuntimeUses) {
    const Output output = install("--subnets 198.18.9.0/24,2001:db8:9::/64 --network blue --mtu 1400 --fast-path local "
                                  "--uplinks up*,ens1 --cluster-cidrs 198.18.0.0/16 --log-level info --log-file " +
                                  node_.dir() + "/log");
    ASSERT_EQ(output.rc, 0) << output.err;
    EXPECT_EQ(read_file(bin() + "/podlane"), read_file(std::getenv("PODLANE_BIN")));
    struct stat facts {};
    ASSERT_EQ(stat((bin() + "/podlane").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777U, 0755U);
    const Json list = Json::parse(read_file(conflist()));
    EXPECT_EQ(list.at("name"), "blue");
    Json config = list.at("plugins").at(0);
    EXPECT_THAT(config, has_members({{"mtu", 1400},
                                     {"fastPath", "local"},
                                     {"uplinks", Json({"up*", "ens1"})},
                                     {"bpffs", node_.bpffs()},
                                     {"ipMasq", true},
                                     {"log", {{"file", node_.dir() + "/log"}, {"level", "info"}}},
                                     {"capabilities",
                                      Json({{"bandwidth", true}, {"io.kubernetes.cri.pod-annotations", true}})}}));
    EXPECT_EQ(list.at("plugins").size(), 1U) << "a list with a plugin that is missing makes every pod fail";
    EXPECT_THAT(output.err, HasSubstr("there is no plugin portmap in " + bin()));
    config["name"] = list.at("name");
    config["cniVersion"] = list.at("cniVersion");
    config["ipam"]["dataDir"] = node_.leases();
    const auto container = node_.container();
    EXPECT_EQ(node_.cni("ADD", config, *container).rc, 0);
    EXPECT_EQ(node_.cni("DEL", config, *container).rc, 0);
}

TEST_F(NodeTest, InstallAgainChangesOnlyWhatItWrote) {
    ASSERT_EQ(install().rc, 0);
    EXPECT_THAT(install(), prints(0, {"unchanged: " + conflist()}));
    EXPECT_THAT(install("--subnets 198.18.2.0/24"), prints(0));
    EXPECT_THAT(read_file(conflist()), HasSubstr("198.18.2.0/24"));
}

TEST_F(NodeTest, InstallWritesPortmapIfItIsThere) {
    fs::copy("/usr/lib/cni/portmap", bin());
    const Output output = install("--subnets 198.18.9.0/24 --no-masquerade");
    EXPECT_EQ(output.rc, 0);
    EXPECT_EQ(output.err, "");
    const Json plugins = Json::parse(read_file(conflist())).at("plugins");
    EXPECT_FALSE(plugins.at(0).contains("ipMasq"));
    EXPECT_EQ(plugins.at(1).at("type"), "portmap");
}

TEST_F(NodeTest, InstallRefusesToOverwriteWhatItDidNotWrite) {
    std::ofstream(conflist()) << "{}\n";
    EXPECT_THAT(install(), complains(1, {conflist() + " is there, and was not written by podlanectl", "hint: "}));
    EXPECT_FALSE(fs::exists(bin() + "/podlane")) << "nothing is written if something is refused";
    EXPECT_EQ(read_file(conflist()), "{}\n");

    fs::remove(conflist());
    ASSERT_EQ(install().rc, 0);
    std::ofstream(conflist(), std::ios::app) << " ";
    EXPECT_THAT(install("--subnets 198.18.2.0/24"), complains(1, {"was changed since podlanectl wrote it"}));
}

// kubectl's output, as the control plane gives it to the node.
TEST_F(NodeTest, InstallTakesTheRangesOfTheNodeObject) {
    const std::string file = node_.dir() + "/node.json";
    const auto from = [&](const Json &spec) {
        std::ofstream(file) << Json{{"apiVersion", "v1"}, {"kind", "Node"}, {"spec", spec}};
        return install("--from-node " + file);
    };
    EXPECT_THAT(
        from({{"podCIDR", "198.18.3.0/24"}, {"podCIDRs", {"198.18.3.0/24", "2001:db8:3::/64"}}}),
        prints(0, {"node object: " + file + " has range 198.18.3.0/24,2001:db8:3::/64", "wrote " + conflist()}));
    const Json ranges = Json::parse(read_file(conflist())).at("plugins").at(0).at("ipam").at("ranges");
    EXPECT_EQ(ranges, Json::parse(R"([[{"subnet": "198.18.3.0/24"}], [{"subnet": "2001:db8:3::/64"}]])"));
    EXPECT_THAT(from({{"podCIDR", "198.18.4.0/24"}}), prints(0));
    for (const auto &[spec, says] : std::vector<std::pair<Json, std::string>>{
             {Json::object(), "no spec.podCIDRs"},
             {{{"podCIDRs", {"everything"}}}, "spec.podCIDRs[0] is \"everything\""},
             {{{"podCIDRs", {"0.0.0.0/0"}}}, "spec.podCIDRs[0]"},
             {{{"podCIDRs", {"198.18.4.1/24"}}}, "spec.podCIDRs[0]"},
             {{{"podCIDRs", {"198.18.4.0/24", "198.18.5.0/24"}}}, "spec.podCIDRs[1] is a second range"},
             {{{"podCIDRs", "198.18.4.0/24"}}, "spec.podCIDRs"},
             {{{"podCIDRs", {7}}}, "spec.podCIDRs[0]"},
             {{{"podCIDR", "224.0.0.0/8"}}, "spec.podCIDR"},
             {{{"podCIDR", "169.254.0.0/16"}}, "spec.podCIDR"}})
        EXPECT_THAT(from(spec), complains(1, {says, "hint: "})) << spec;
    // Quoted control characters do not reach the terminal as they are.
    EXPECT_THAT(from({{"podCIDR", "\x1b]0;title\a\r\xc2\x9b"}}), complains(1, {"spec.podCIDR is \"?]0;title????\""}));
    std::ofstream(file) << "{\"kind\": \"List\"}";
    EXPECT_THAT(install("--from-node " + file), complains(1, {"is a \"List\", expected a Node", "kubectl get node"}));
    EXPECT_THAT(install("--from-node " + file + " --subnets 198.18.1.0/24"), complains(2, {"--from-node"}));
    EXPECT_THAT(read_file(conflist()), HasSubstr("198.18.4.0/24")) << "what is refused changes nothing";
}

TEST_F(NodeTest, InstallDryRunWritesNothing) {
    EXPECT_THAT(install("--subnets 198.18.1.0/24 --dry-run"),
                prints(0, {"would write " + bin() + "/podlane", "would write " + conflist(), "198.18.1.0/24"}));
    EXPECT_TRUE(fs::is_empty(bin()));
    EXPECT_TRUE(fs::is_empty(conf()));
}

// ADD would take a registered table for one that does the node's NAT, and masquerade by iptables from then on.
TEST_F(NodeTest, InstallRegistersNoTableOfIptables) {
    for (const std::string more : {"--dry-run", "", "--cluster-cidrs 0.0.0.0/0"}) {
        (void)install("--subnets 198.18.1.0/24 " + more);
        for (const std::string family : {"ip", "ip6"})
            EXPECT_THAT(run(node_.ns(), {"cat", "/proc/net/" + family + "_tables_names"}).out, Not(HasSubstr("nat")))
                << more;
    }
}

// In a /run of its own, as flannel's daemon leaves it.
TEST_F(NodeTest, InstallSaysWhatItFindsOnTheNode) {
    const auto install_beside = [&](const std::string &subnet_env, const std::string &more) {
        std::ofstream(node_.dir() + "/subnet.env") << subnet_env;
        std::string command =
            "mount -t tmpfs none /run && mkdir /run/flannel && cp " + node_.dir() + "/subnet.env /run/flannel/ && exec";
        for (const std::string &word :
             ctl_argv(node_.bpffs(), "install --dry-run --bin-dir " + bin() + " --conf-dir " + conf() + " --plugin " +
                                         std::getenv("PODLANE_BIN") + " " + more))
            command += " " + word;
        return run(node_.ns(), {"unshare", "-m", "sh", "-c", command});
    };
    const std::string flannel = "FLANNEL_NETWORK=198.18.0.0/16\nFLANNEL_SUBNET=198.18.7.1/24\nFLANNEL_MTU=1450\n"
                                "FLANNEL_IPV6_NETWORK=2001:db8:10::/48\nFLANNEL_IPV6_SUBNET=2001:db8:10:7::1/64\n"
                                "FLANNEL_IPMASQ=true\n";
    const auto conflist_in = [](const Output &output) {
        return Json::parse(output.out.substr(output.out.find("\n{") + 1)).at("plugins").at(0);
    };
    const Output all = install_beside(flannel, "");
    ASSERT_THAT(all,
                prints(0, {"flannel: /run/flannel/subnet.env has range 198.18.7.0/24,2001:db8:10:7::/64 and MTU 1450",
                           "flannel masquerades"}));
    EXPECT_THAT(
        conflist_in(all),
        has_members({{"clusterCIDRs", {"198.18.0.0/16", "2001:db8:10::/48"}}, {"mtu", 1450}, {"ipMasq", true}}));
    EXPECT_EQ(conflist_in(all)["ipam"]["ranges"],
              Json::parse(R"([[{"subnet": "198.18.7.0/24"}], [{"subnet": "2001:db8:10:7::/64"}]])"));
    EXPECT_THAT(
        conflist_in(install_beside(flannel, "--subnets 198.18.8.0/24 --mtu 1400 --cluster-cidrs 198.18.8.0/21")),
        has_members({{"clusterCIDRs", {"198.18.8.0/21"}}, {"mtu", 1400}}))
        << "options go first";
    for (const auto &[text, says] : std::vector<std::pair<std::string, std::string>>{
             {"FLANNEL_SUBNET=198.18.7.1\n", "FLANNEL_SUBNET"},
             {"FLANNEL_SUBNET=198.18.7.1/24\nFLANNEL_SUBNET=198.18.8.1/24\n", "second range"},
             {"FLANNEL_SUBNET=198.18.7.1/24\nFLANNEL_NETWORK=0.0.0.0/0\n", "FLANNEL_NETWORK"},
             {"FLANNEL_SUBNET=198.18.7.1/24\nFLANNEL_MTU=\033[2J\n", "FLANNEL_MTU is \"?[2J\""},
             {"FLANNEL_SUBNET=198.18.7.1/24\nFLANNEL_MTU=7\n", "mtu"}})
        EXPECT_THAT(install_beside(text, ""), complains(1, {says})) << text;
    EXPECT_THAT(install_beside("", ""), complains(2, {"install needs --subnets"}));

    on_node("nft add table ip kube-proxy");
    on_node("ip link add flannel.1 type veth peer name flannel.2");
    EXPECT_THAT(install_beside("", "--subnets 198.18.8.0/24"),
                prints(0, {"kube-proxy: nftables mode", "flannel: VXLAN device flannel.1: add --uplinks flannel.1"}));
    on_node("nft delete table ip kube-proxy");
    on_node("iptables-legacy -w -t nat -N KUBE-SERVICES");
    EXPECT_THAT(install_beside("", "--subnets 198.18.8.0/24"), prints(0, {"kube-proxy: iptables mode"}));
    EXPECT_TRUE(fs::is_empty(bin()) && fs::is_empty(conf()));
}

// In a /usr/sbin of its own, with iptables-save alone: a copy of the one or the other.
TEST_F(NodeTest, InstallKnowsIptablesSaveByItsVersion) {
    const std::string sbin = node_.dir() + "/sbin";
    fs::create_directory(sbin);
    const auto install_with = [&](const std::string &program) {
        fs::copy_file(fs::canonical("/usr/sbin/" + program), sbin + "/iptables-save",
                      fs::copy_options::overwrite_existing);
        std::string command = "mount --bind " + sbin + " /usr/sbin && exec";
        for (const std::string &word :
             ctl_argv(node_.bpffs(), "install --dry-run --subnets 198.18.8.0/24 --bin-dir " + bin() + " --conf-dir " +
                                         conf() + " --plugin " + std::getenv("PODLANE_BIN")))
            command += " " + word;
        return run(node_.ns(), {"unshare", "-m", "sh", "-c", command});
    };
    on_node("iptables-nft -w -t nat -N KUBE-SERVICES");
    EXPECT_THAT(install_with("iptables-nft-save"), prints(0, {"kube-proxy: iptables mode"}));
    const Output older = install_with("iptables-legacy-save");
    EXPECT_THAT(older, prints(0));
    EXPECT_THAT(older.out, Not(HasSubstr("kube-proxy")));
    EXPECT_THAT(run(node_.ns(), {"cat", "/proc/net/ip_tables_names"}).out, Not(HasSubstr("nat")));
    on_node("iptables-nft -w -t nat -X KUBE-SERVICES");
    EXPECT_THAT(install_with("iptables-nft-save").out, Not(HasSubstr("kube-proxy")));
    on_node("iptables-legacy -w -t nat -N KUBE-SERVICES");
    EXPECT_THAT(install_with("iptables-legacy-save"), prints(0, {"kube-proxy: iptables mode"}));
}

// Nothing on the node says what the other nodes' ranges are: the plan says what that leads to.
TEST_F(NodeTest, InstallWarnsOfMasqueradingTowardsOtherNodes) {
    const std::string ipv4 = "warning: --cluster-cidrs has no IPv4 range: pods of other nodes see this node's address";
    const std::string ipv6 = "warning: --cluster-cidrs has no IPv6 range";
    const std::string both = "--dry-run --subnets 198.18.1.0/24,2001:db8:1::/64 ";
    EXPECT_THAT(install(both), prints(0, {ipv4, ipv6}));
    const Output one = install(both + "--cluster-cidrs 198.18.0.0/16");
    EXPECT_THAT(one, prints(0, {ipv6}));
    EXPECT_THAT(one.out, Not(HasSubstr(ipv4)));
    for (const std::string more : {"--cluster-cidrs 198.18.0.0/16,2001:db8::/48", "--no-masquerade"}) // nothing to say
        EXPECT_THAT(install(both + more).out, Not(HasSubstr("warning"))) << more;
    EXPECT_THAT(install("--dry-run --subnets 198.18.1.0/24 --cluster-cidrs 198.18.0.0/16").out,
                Not(HasSubstr("warning")))
        << "pods have no IPv6 addresses";
}

// Keys without an option of their own, such as a limit for each pod.
TEST_F(NodeTest, InstallTakesFurtherKeys) {
    const auto install_with = [&](const std::string &keys, std::vector<std::string> more) {
        std::vector<std::string> argv = ctl_argv(node_.bpffs(), "install --bin-dir " + bin() + " --conf-dir " + conf() +
                                                                    " --plugin " + std::getenv("PODLANE_BIN"));
        argv.insert(argv.end(), {"--keys", keys});
        argv.insert(argv.end(), more.begin(), more.end());
        return run(node_.ns(), argv);
    };
    const std::vector<std::string> ranges = {"--subnets", "198.18.1.0/24"};
    const Json keys = {{"egressRate", 1000000}, {"egressBurst", 1000000}, {"ipMasq", false}};
    EXPECT_THAT(install_with("{}", ranges), prints(0, {"wrote " + conflist()}));
    EXPECT_THAT(install_with(keys.dump(), ranges), prints(0, {"wrote " + conflist()}));
    const Json plugin = Json::parse(read_file(conflist())).at("plugins").at(0);
    EXPECT_THAT(plugin, has_members({{"type", "podlane"}, {"egressRate", 1000000}, {"ipMasq", false}}));
    for (const auto &[wrong, says] :
         std::vector<std::pair<std::string, std::string>>{{R"({"egresRate": 1})", "egresRate"},
                                                          {R"({"mtu": 7})", "mtu"},
                                                          {R"({"type": "ptp"})", "\"type\""},
                                                          {"[]", "--keys"},
                                                          {"{", "--keys"},
                                                          {"\033[2J", "--keys"}}) {
        const Output refused = install_with(wrong, ranges);
        EXPECT_THAT(refused, complains(1, {says})) << wrong;
        EXPECT_THAT(refused.err, Not(HasSubstr("\033")));
    }
    EXPECT_EQ(Json::parse(read_file(conflist())).at("plugins").at(0), plugin) << "what is refused changes nothing";

    std::ofstream(conf() + "/20-theirs.conflist")
        << Json{{"cniVersion", "1.0.0"}, {"name", "theirs"}, {"plugins", {{{"type", "ptp"}}}}};
    EXPECT_THAT(install_with(R"({"fastPath": "local"})", {"--mode", "chained"}), prints(0));
    const Json plugins = Json::parse(read_file(conflist())).at("plugins");
    EXPECT_EQ(plugins.at(0), Json({{"type", "ptp"}}));
    EXPECT_EQ(plugins.at(1).at("fastPath"), "local");
}

// The earlier conflist is kept as it is, and is the runtime's again after uninstall.
TEST_F(NodeTest, InstallGoesInFrontOfAnothersNetworkAndBack) {
    const std::string theirs = conf() + "/10-flannel.conflist";
    const std::string text = R"({"name": "cbr0", "cniVersion": "0.3.1", "plugins": [{"type": "flannel"}]})";
    std::ofstream(theirs) << text;
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(install("--subnets 198.18.1.0/24"), prints(0, {theirs + " (flannel), kept behind 00-podlane"}));
    EXPECT_FALSE(fs::exists(conflist()));
    EXPECT_EQ(read_file(theirs), text);
    EXPECT_THAT(uninstall(), prints(0, {"the runtime uses " + theirs + " for new pods"}));
    EXPECT_FALSE(fs::exists(conf() + "/00-podlane.conflist"));
    EXPECT_EQ(read_file(theirs), text);
    // Nothing can be in front of this one.
    fs::rename(theirs, conf() + "/00-a.conflist");
    EXPECT_THAT(install("--subnets 198.18.1.0/24"), complains(1, {"00-a.conflist is in front", "hint: "}));
}

// multus' own file, which names Podlane's network, is not in its way: repeating an install changes nothing then.
TEST_F(NodeTest, InstallLeavesMultusInFront) {
    const std::string ranges = "--subnets 198.18.1.0/24";
    ASSERT_THAT(install(ranges), prints(0, {"wrote " + conflist()}));
    for (const char *type : {"multus", "multus-shim"}) {
        std::ofstream(conf() + "/00-multus.conf") << Json{{"cniVersion", "1.0.0"}, {"name", "m"}, {"type", type}};
        EXPECT_THAT(install(ranges), prints(0, {"/00-multus.conf stays in front", "unchanged: " + conflist()}));
    }
    EXPECT_THAT(install("--mode chained"), complains(1, {"there is no network in " + conf()}));
    std::ofstream(conf() + "/20-theirs.conflist")
        << Json{{"cniVersion", "1.0.0"}, {"name", "theirs"}, {"plugins", {{{"type", "ptp"}}}}};
    EXPECT_THAT(install("--mode chained"), prints(0, {"wrote " + conflist()}));
    EXPECT_EQ(Json::parse(read_file(conflist())).at("plugins").at(0).at("type"), "ptp");
    fs::rename(conf() + "/00-multus.conf", conf() + "/70-multus.conf");
    EXPECT_THAT(install(ranges), prints(0, {"/70-multus.conf is behind 10-podlane.conflist"}));
    EXPECT_THAT(uninstall(), prints(0, {"removed " + conflist()}));
}

// A pipe that nobody writes to, a device without an end, a directory, a link to nothing.
TEST_F(NodeTest, NothingInTheRuntimesDirectoryHoldsACommand) {
    on_node("mkfifo " + conf() + "/20-pipe.conf");
    fs::create_symlink("/dev/zero", conf() + "/21-zero.conflist");
    fs::create_symlink("/nowhere", conf() + "/22-nothing.conf");
    fs::create_directory(conf() + "/23-directory.json");
    const auto ends = [&](const std::string &command) {
        std::vector<std::string> argv = ctl_argv(node_.bpffs(), command + " --conf-dir " + conf());
        argv.insert(argv.begin(), {"timeout", "-s", "KILL", slow() ? "100" : "20"});
        return run(node_.ns(), argv);
    };
    const std::string files = " --bin-dir " + bin() + " --plugin " + std::getenv("PODLANE_BIN");
    EXPECT_THAT(ends("install --subnets 198.18.1.0/24" + files), prints(0, {"/20-pipe.conf (), kept behind"}));
    EXPECT_THAT(ends("install --mode chained" + files), complains(1, {"20-pipe.conf"}));
    EXPECT_THAT(ends("doctor"), prints(0));
    EXPECT_THAT(ends("load"), prints(0));
    EXPECT_THAT(ends("uninstall --bin-dir " + bin()), prints(0, {"removed " + conflist()}));
}

// Files that a person names, and those that install() looks at before it writes.
TEST_F(NodeTest, InstallReadsRegularFilesOnly) {
    const auto ends = [&](const std::string &command) {
        std::vector<std::string> argv = ctl_argv(node_.bpffs(), command + " --conf-dir " + conf());
        argv.insert(argv.begin(), {"timeout", "-s", "KILL", slow() ? "100" : "20"});
        return run(node_.ns(), argv);
    };
    const std::string pipe = node_.dir() + "/pipe", large = node_.dir() + "/large", to = " --bin-dir " + bin();
    on_node("mkfifo " + pipe);
    on_node("truncate -s 17M " + large);
    const std::string ranges = " --subnets 198.18.1.0/24",
                      plugin = " --plugin " + std::string(std::getenv("PODLANE_BIN"));
    for (const std::string &file : {std::string("/dev/zero"), pipe, conf()})
        for (const std::string &command : {"install" + to + plugin + " --from-node " + file,
                                           "install" + to + ranges + " --plugin " + file, "load " + file})
            EXPECT_THAT(ends(command), complains(1, {file + ": it is not a regular file", "hint: "})) << command;
    for (const std::string &command : {"install" + to + plugin + " --from-node " + large, "load " + large})
        EXPECT_THAT(ends(command), complains(1, {large + ": it is larger than 16 MiB"})) << command;
    on_node("mkfifo " + conflist());
    EXPECT_THAT(ends("install" + to + plugin + ranges), complains(1, {conflist() + ": it is not a regular file"}));
    EXPECT_THAT(ends("uninstall" + to), complains(1, {conflist() + ": it is not a regular file"}));
}

// Whoever wrote another network's files, nothing in them reaches the terminal, and what cannot be listed is no
// "nothing".
TEST_F(NodeTest, InstallAndUninstallPrintFilesOfOthersSafely) {
    const Json list = {{"cniVersion", "1.0.0"}, {"name", "a\033[2J"}, {"plugins", {{{"type", "pt\033[2Jp"}}}}};
    std::ofstream(conf() + "/20-\033[2J.conflist") << list;
    EXPECT_THAT(install("--subnets 198.18.1.0/24"), prints(0, {"/20-?[2J.conflist (pt?[2Jp), kept behind"}));
    const Output removed = uninstall();
    EXPECT_THAT(removed, prints(0, {"/20-?[2J.conflist for new pods"}));
    EXPECT_THAT(removed.out, Not(HasSubstr("\033")));
    std::vector<std::string> argv = {"strace", "-qq", "-o", "/dev/null", "-e", "inject=getdents64:error=EIO:when=2+"};
    const auto command = ctl_argv(node_.bpffs(), "doctor --conf-dir " + conf());
    argv.insert(argv.end(), command.begin(), command.end());
    EXPECT_THAT(run(node_.ns(), argv), prints(1, {"cannot be checked: listing " + conf() + ": Input/output error"}));
}

TEST_F(NodeTest, InstallChainsIntoAnothersNetwork) {
    EXPECT_THAT(install("--mode chained"), complains(1, {"there is no network in " + conf(), "hint: "}));
    const std::string theirs = conf() + "/20-theirs.conflist";
    const Json list = {{"cniVersion", "1.0.0"},
                       {"name", "theirs"},
                       {"plugins",
                        {{{"type", "ptp"}, {"ipMasq", true}, {"ipam", node_.ipam()}},
                         {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}}}}};
    std::ofstream(theirs) << list;
    for (int i = 0; i < 2; ++i)
        ASSERT_EQ(install("--mode chained --fast-path local").rc, 0);
    const Json plugins = Json::parse(read_file(conflist())).at("plugins");
    ASSERT_EQ(plugins.size(), 3U);
    EXPECT_EQ(plugins.at(0), list.at("plugins").at(0));
    EXPECT_THAT(plugins.at(1), has_members({{"type", "podlane"}, {"fastPath", "local"}}));
    EXPECT_EQ(plugins.at(2), list.at("plugins").at(1));
    // The runtime's order of calls.
    Chain chain(node_, {plugins.at(0), plugins.at(1)});
    const auto container = node_.container();
    EXPECT_THAT(chain.add(*container), succeeds());
    EXPECT_THAT(chain.check(*container), succeeds());
    EXPECT_THAT(chain.del(*container), succeeds());
    EXPECT_THAT(install("--mode chained --subnets 198.18.1.0/24"), complains(2, {"--mode chained takes addresses"}));
    for (const char *bad :
         {"", "[]", "{\"plugins\": 7}", "{\"plugins\": [{}]}", "{\"plugins\": [7, {\"type\": \"a\"}]}"}) {
        std::ofstream(theirs) << bad;
        EXPECT_EQ(install("--mode chained").rc, 1) << bad;
    }
    EXPECT_THAT(read_file(conflist()), HasSubstr("portmap")) << "what is refused changes nothing";
}

TEST_F(NodeTest, InstallRefusesWrongOptions) {
    for (const auto &[more, says] :
         {std::pair{"", "install needs --subnets"}, std::pair{"--subnets 198.18.1.0", "is not a prefix"},
          std::pair{"--subnets ::ffff:198.18.1.0/24", "hint: write the IPv4 address, 198.18.1.0"},
          std::pair{"--subnets 198.18.1.0/24 --cluster-cidrs ::ffff:0:0/0", "hint: write the IPv4 address, 0.0.0.0"},
          std::pair{"--subnets 198.18.1.0/24 --mtu big", "is not a number"},
          std::pair{"--subnets 198.18.1.0/24 --fast-path maybe", "is not on, local or off"}}) {
        EXPECT_THAT(install(more), complains(2, {says})) << more;
    }
    for (const auto &[more, says] :
         {std::pair{"198.18.1.5/24", "is \"198.18.1.5/24\""}, std::pair{"0.0.0.0/0", "is \"0.0.0.0/0\""}})
        EXPECT_THAT(install(std::string("--subnets ") + more), complains(2, {says})) << more;
    for (const std::string everything : {"0.0.0.0/0", "::/0", "198.18.0.0/16,0.0.0.0/0"})
        EXPECT_THAT(install("--subnets 198.18.1.0/24 --cluster-cidrs " + everything),
                    complains(2, {"--cluster-cidrs is \"", "/0\"", "hint: name the pods' ranges alone"}))
            << everything;
    for (const auto &[more, says] :
         {std::pair{"--log-level loud", "log.level"}, std::pair{"--log-file log", "log.file"},
          std::pair{"--mtu 7", "mtu"}, std::pair{"--network a/b", "name"}, std::pair{"--uplinks a/b", "uplinks"}})
        EXPECT_THAT(install(std::string("--subnets 198.18.1.0/24 ") + more), complains(1, {says})) << more;
    EXPECT_TRUE(fs::is_empty(bin()) && fs::is_empty(conf())) << "no ADD would work with it";
    EXPECT_THAT(
        ctl("install --subnets 198.18.1.0/24 --bin-dir /nowhere --plugin " + std::string(std::getenv("PODLANE_BIN"))),
        complains(1, {"/nowhere: No such file"}));
}

} // namespace
} // namespace podlane::test
