// SPDX-License-Identifier: MIT
// Settings of the node that ADD changes: the log says so, the former values are on disk, uninstall restores them, and
// what an administrator has changed since stays.
#include "loader/record.hpp"
#include "loader/settings.hpp"
#include "loader/state_file.hpp"
#include "tests/netns/ctl.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

constexpr const char *kLiberal = "net.netfilter.nf_conntrack_tcp_be_liberal";
constexpr const char *kReset = "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst";

class SettingsTest : public CtlTest {
  protected:
    SettingsTest() {
        for (const char *name : {kLiberal, kReset, "net.ipv4.ip_forward"})
            set_sysctl(node_.ns(), name, "0");
    }
    [[nodiscard]] std::string value(const std::string &name) const { return sysctl(node_.ns(), name); }
    [[nodiscard]] std::string uninstall() const {
        const Output output = ctl("uninstall --bin-dir " + node_.dir() + "/none --conf-dir " + node_.dir() + "/none");
        EXPECT_EQ(output.rc, 0) << output.err;
        return output.out;
    }
    // Of the node's namespace.
    [[nodiscard]] std::string file() const {
        const auto inside = require(net::enter(node_.ns()));
        return require(NodeSettings::open(kStateDirectory)).path();
    }
    [[nodiscard]] bool is_damaged() const {
        return ctl("doctor --json").out.find("\"settings-file\"") != std::string::npos;
    }
    Json keys_ = {{"log", {{"level", "warning"}}}};
};

TEST_F(SettingsTest, AreLoggedAndRestoredWhenThePodsAreGone) {
    const auto container = node_.container();
    const Reply reply = succeeded(add(*container, keys_));
    EXPECT_THAT(reply.err, AllOf(HasSubstr("nf_conntrack_tcp_be_liberal is now 1"), HasSubstr("ignore_invalid_rst")));
    const auto second = node_.container();
    EXPECT_THAT(add(*second, keys_).err, IsEmpty()) << "once is enough";

    EXPECT_THAT(uninstall(), AllOf(HasSubstr(std::string("kept, for connections of its pods: ") + kLiberal)));
    EXPECT_EQ(value(kLiberal), "1");

    for (const Json &link : ip_json(node_.ns(), "link"))
        if (link.at("ifname").get<std::string>().starts_with("cali"))
            on_node("ip link del " + link.at("ifname").get<std::string>());
    EXPECT_THAT(uninstall(), AllOf(HasSubstr(std::string("restored ") + kLiberal + " = 0"),
                                   HasSubstr("net.ipv4.ip_forward = 1; before Podlane: 0")));
    EXPECT_EQ(value(kLiberal), "0");
    EXPECT_EQ(value(kReset), "0");
    EXPECT_EQ(value("net.ipv4.ip_forward"), "1");
    EXPECT_THAT(uninstall(), Not(HasSubstr("be_liberal")));
}

TEST_F(SettingsTest, ThatAnAdministratorChangedStay) {
    const Pod first = make(keys_);
    set_sysctl(node_.ns(), kLiberal, "0");
    const auto second = node_.container();
    EXPECT_THAT(add(*second, keys_).err, HasSubstr("nf_conntrack_tcp_be_liberal is 0 again"));
    EXPECT_EQ(value(kLiberal), "0");
    for (const auto &container : {first.container, second})
        ASSERT_EQ(del(*container, keys_).rc, 0);
    EXPECT_THAT(uninstall(), HasSubstr(std::string("left alone: ") + kLiberal));
    EXPECT_EQ(value(kLiberal), "0");
    EXPECT_EQ(value(kReset), "0");
}

// The last step of a first ADD fails: the rules of its network go. Settings of the node stay, and are on record: other
// calls, and programs, may rely on them by now.
TEST_F(SettingsTest, StayAfterAnAddThatFailsAndItsRulesDoNot) {
    const Json keys = {{"ipMasq", true},
                       {"firstPacket", "host"},
                       {"egress", "cluster"},
                       {"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}};
    const auto rules = [&] {
        std::string text = node_.run("nft list ruleset");
        for (const char *program : {"iptables-legacy-save", "ip6tables-legacy-save"})
            text += node_.run(program);
        return text;
    };
    for (const bool by_nft : {true, false}) {
        const char *mark = by_nft ? "set pods4" : "PODLANE-";
        SCOPED_TRACE(mark);
        if (!by_nft)
            node_.run("iptables-legacy -w -t nat -N KUBE-SERVICES"); // now the older iptables does the node's NAT
        const auto container = node_.container();
        Variables variables = attachment(*container);
        variables.merge(Variables{{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        EXPECT_THAT(run(node_.ns(), {"sh", "-c", "exec " + node_.plugins() + "/podlane >/dev/full"},
                        node_.config(keys).dump(), variables),
                    complains(1, {"writing the result to standard output"}));
        EXPECT_THAT(rules(), AllOf(Not(HasSubstr("podlane")), Not(HasSubstr("PODLANE"))));
        const Pod pod = make(keys);
        EXPECT_THAT(rules(), HasSubstr(mark)) << "of an ADD that succeeds";
        EXPECT_THAT(del(*pod.container, keys), succeeds());
    }
    for (const char *name : {kLiberal, kReset, "net.ipv4.ip_forward"})
        EXPECT_EQ(value(name), "1") << name;
    EXPECT_THAT(uninstall(),
                has_all({std::string("restored ") + kLiberal + " = 0", "net.ipv4.ip_forward = 1; before Podlane: 0"}));
}

// The kernel uses the number of a namespace's inode again, at once.
TEST_F(SettingsTest, OfANamespaceThatIsGoneAreNotThoseOfTheNext) {
    for (int i = 0; i < 3; ++i) {
        const auto other = node_.container("namespace" + std::to_string(i));
        const auto inside = require(net::enter(other->ns()));
        const NodeSettings settings = require(NodeSettings::open(kStateDirectory));
        EXPECT_EQ(require(settings.list()).size(), 0U);
        const net::SysctlPath path = {"net", "netfilter", "nf_conntrack_tcp_be_liberal"};
        EXPECT_EQ(require(settings.change(path, "1")), Change::changed);
    }
}

// Whatever else has written to the file: nothing that it said is taken for "no setting was changed".
TEST_F(SettingsTest, OfADamagedFileStayAndUninstallSaysSo) {
    const std::string boot = require(boot_id()) + "\n", line = "net/netfilter/nf_conntrack_tcp_be_liberal\t0\t1\n";
    for (const std::string &text :
         {std::string(), std::string(300, '\xff'), std::string("garbage\n"), boot + line.substr(0, line.size() - 1),
          boot + line.substr(0, line.find('\t')) + "\n" + line, boot + "net\t0\t1\n", boot + "../x/y\t0\t1\n"}) {
        SCOPED_TRACE(text);
        set_sysctl(node_.ns(), kLiberal, "0");
        EXPECT_THAT(del(*make(keys_).container), succeeds());
        EXPECT_FALSE(is_damaged());
        std::ofstream(file()) << text;
        EXPECT_TRUE(is_damaged());
        EXPECT_THAT(uninstall(),
                    AllOf(HasSubstr("removed " + file() + ", which could not be read"), Not(HasSubstr("restored"))));
        EXPECT_EQ(value(kLiberal), "1");
        EXPECT_FALSE(fs::exists(file()));
        EXPECT_FALSE(is_damaged());
    }
}

TEST_F(SettingsTest, OfAnotherBootAreNone) {
    std::ofstream(file()) << "01234567-89ab-cdef-0123-456789abcdef\n"
                          << "net/ipv4/ip_forward\t0\t1\n";
    EXPECT_FALSE(is_damaged());
    EXPECT_THAT(uninstall(), Not(HasSubstr("ip_forward")));
}

// As after a power cut: no ADD fails, or leaves a setting as it was, because of it.
TEST_F(SettingsTest, OfADamagedFileAreReplacedByTheNextOnes) {
    std::ofstream(file()).close();
    const auto container = node_.container();
    const Reply reply = succeeded(add(*container, keys_));
    EXPECT_THAT(reply.err, HasSubstr(file() + " could not be read, and is replaced"));
    EXPECT_FALSE(is_damaged());
    EXPECT_THAT(add(*node_.container(), keys_).err, IsEmpty()) << "once is enough";
    EXPECT_THAT(read_file(file()), has_all({"ip_forward\t0\t1", "be_liberal\t0\t1"}));
}

// Writes go to the file's successor: a call that fails or is killed loses no former value.
TEST_F(SettingsTest, AreNotChangedIfTheFormerValueCannotBeRecorded) {
    // Those of the nodes before, if one process runs all tests.
    for (const auto &one : fs::directory_iterator(kStateDirectory))
        fs::remove_all(one.path());
    (void)make(keys_);
    std::string number;
    for (const auto &one : std::filesystem::directory_iterator(kStateDirectory))
        if (one.path().filename().string().starts_with("settings-"))
            number = one.path().filename();
    const std::string successor = std::string(kStateDirectory) + "/." + number;
    const auto listed = [&] { return read_file(std::string(kStateDirectory) + "/" + number); };
    const std::string before = listed();
    std::filesystem::create_directory(successor);
    node_.run("ip -6 route add 2001:db8:aa::/48 dev up0 proto ra");
    set_sysctl(node_.ns(), "net.ipv6.conf.all.forwarding", "0");
    set_sysctl(node_.ns(), "net.ipv6.conf.up0.accept_ra", "1");
    const auto container = node_.container();

    const Reply failed = add(*container, keys_);

    EXPECT_NE(failed.rc, 0);
    EXPECT_THAT(failed.message(), HasSubstr(successor));
    EXPECT_EQ(value("net.ipv6.conf.up0.accept_ra"), "1");
    EXPECT_EQ(listed(), before);
    std::filesystem::remove(successor);
    EXPECT_EQ(add(*container, keys_).rc, 0);
    EXPECT_THAT(listed(), has_all({before, "accept_ra"}));
}

TEST_F(SettingsTest, LeaveNoUnfinishedFileOnAFullDisk) {
    const std::string disk = node_.dir() + "/disk";
    fs::create_directory(disk);
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k"), 0);
    std::ofstream(disk + "/fill") << std::string(std::size_t{1} << 20U, 'x');
    const auto inside = require(net::enter(node_.ns()));
    EXPECT_FALSE(require(NodeSettings::open(disk)).enforce({"net", "ipv4", "ip_forward"}, "1"));
    EXPECT_THAT(require(names_in(disk, Hidden::too)), testing::ElementsAre("fill"));
    umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(SettingsTest, OfConntrackAreNotChangedIfTheConfigurationSaysSo) {
    keys_["conntrackLiberal"] = false;
    const auto container = node_.container();
    ASSERT_EQ(add(*container, keys_).rc, 0);
    EXPECT_EQ(value(kLiberal), "0");
}

// RFC 4861: a forwarding interface ignores advertisements, and the node's default route would expire.
TEST_F(SettingsTest, KeepRouterAdvertisementsIfSomethingCameFromOne) {
    for (const char *link : {"up1", "up2", "up3", "up4"})
        node_.run(std::string("ip link add ") + link + " up type veth peer name " + link + "-peer");
    node_.run("ip -6 route add 2001:db8:aa::/48 dev up2 proto ra");
    node_.run("ip addr add 2001:db8:bb::7/64 dev up3 valid_lft 1000 preferred_lft 1000"); // as if by autoconfiguration
    // As if by a prefix that is on the link, and not for autoconfiguration.
    node_.run("ip -6 route add 2001:db8:cc::/64 dev up4 proto kernel expires 1000");
    set_sysctl(node_.ns(), "net.ipv6.conf.all.forwarding", "0");
    for (const char *link : {"up0", "up1", "up2", "up3", "up4"})
        set_sysctl(node_.ns(), std::string("net.ipv6.conf.") + link + ".accept_ra", "1");
    const Reply reply = succeeded(add(*node_.container(), {{"log", {{"level", "warning"}}}}));
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.up0.accept_ra"), "2");
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.up1.accept_ra"), "1") << "no advertisement gave it anything";
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.up2.accept_ra"), "2") << "a route of it is from an advertisement";
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.up3.accept_ra"), "2") << "an address of it is from an advertisement";
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf.up4.accept_ra"), "2") << "a prefix of it is from an advertisement";
    EXPECT_THAT(reply.err, HasSubstr("accept_ra of up0 is now 2"));
}

} // namespace
} // namespace podlane::test
