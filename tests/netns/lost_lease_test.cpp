// SPDX-License-Identifier: MIT
// A lease is forgotten only if nothing is known of its attachment any more; one that waits is seen, and can be
// released.
#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class LostLeaseTest : public CtlTest {
  protected:
    void put_ipam(const std::string &name, const std::string &script) const {
        node_.put_plugin(name, "#!/bin/sh\n" + script + "\n");
    }
    [[nodiscard]] Json leases_of(const std::string &type) const {
        Json ipam = node_.ipam();
        ipam["type"] = type;
        return {{"ipam", ipam}};
    }
    [[nodiscard]] AttachmentRecords records() const { return {kStateDirectory, node_.bpffs()}; }
    [[nodiscard]] std::string path_of(const Pod &made) const {
        return records().directory() + "/" + made.container->id() + ":eth0";
    }
    // A DEL that releases no lease, and is repeated.
    void expect_kept(const Pod &made, const Json &keys) const {
        for (int i = 0; i < 2; ++i)
            EXPECT_THAT(del(*made.container, keys), fails_with(103, {"198.51.100.0/33"}));
        EXPECT_EQ(node_.leased().size(), 2U);
    }
    void expect_released(const Pod &made) const {
        EXPECT_THAT(del(*made.container), succeeds());
        EXPECT_EQ(everything(), before_);
    }
    // A pod of which no record on disk is left, or neither that nor the maps.
    [[nodiscard]] Pod make_unrecorded(bool with_pins, const Json &keys = Json::object()) {
        Pod made = make(keys);
        fs::remove(path_of(made));
        if (!with_pins)
            fs::remove_all(node_.bpffs());
        return made;
    }
    // A DEL that removes all else, says that there is a lease, and is repeated.
    void expect_refused(const Pod &made, bool with_pins, const Json &config, int code, const std::string &why) const {
        for (int i = 0; i < 2; ++i)
            EXPECT_THAT(node_.cni("podlane", "DEL", config, attachment(*made.container)),
                        fails_with(code, {why, "no record says which IPAM plugin has the lease"}));
        const Json link = host_link(made);
        EXPECT_TRUE(with_pins ? link.is_null() : link.at("operstate") == "DOWN");
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_TRUE(node_.records().empty());
    }

    const Json broken_ = {{"ipam", {{"type", "host-local"}, {"subnet", "198.51.100.0/33"}}}};
    const std::string real_ = "exec " + variable("CNI_PLUGINS") + "/host-local";
    const std::string before_ = everything();
};

// kubelet repeats StopPodSandbox until it succeeds.
TEST_F(LostLeaseTest, AnAddThatWasRefusedHasNoLease) {
    const auto container = node_.container();
    EXPECT_THAT(add(*container, broken_), fails_with(103, {"198.51.100.0/33"}));
    for (int i = 0; i < 2; ++i) {
        const Reply reply = del(*container, broken_);
        EXPECT_THAT(reply, succeeds());
        EXPECT_THAT(reply.err, HasSubstr("nothing is known of the attachment, so it has no lease"));
    }
    EXPECT_EQ(everything(), before_);
    // Of every version, and without saying of which it is.
    put_ipam("refusing", R"(echo '{"code":1,"msg":"too new for me"}'; exit 1)");
    const Json refusing = {{"ipam", {{"type", "refusing"}}}};
    EXPECT_THAT(add(*container, refusing), fails_with(103, {"too new for me (code 1)"}));
    EXPECT_THAT(del(*container, refusing), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(LostLeaseTest, AnyTraceOfTheAttachmentKeepsItsLease) {
    {
        SCOPED_TRACE("an entry in the maps");
        const Pod made = make();
        fs::remove(path_of(made));
        expect_kept(made, broken_);
        expect_released(made);
    }
    {
        SCOPED_TRACE("an interface, which carries nothing from here on");
        const Pod made = make();
        fs::remove(path_of(made));
        fs::remove_all(node_.bpffs());
        expect_kept(made, broken_);
        EXPECT_EQ(host_link(made).at("operstate"), "DOWN");
        expect_released(made);
    }
    {
        SCOPED_TRACE("an interface of another prefix");
        const Pod made = make();
        fs::remove(path_of(made));
        fs::remove_all(node_.bpffs());
        Json keys = broken_;
        keys["hostInterfacePrefix"] = "plan";
        expect_kept(made, keys);
        expect_released(made);
    }
    {
        SCOPED_TRACE("a torn record");
        const Pod made = make();
        std::ofstream(path_of(made)) << "torn";
        fs::remove_all(node_.bpffs());
        lose_namespace(made);
        for (int i = 0; i < 2; ++i)
            EXPECT_THAT(del(*made.container, broken_), fails_with(103, {"198.51.100.0/33"}));
        EXPECT_EQ(node_.leased().size(), 2U);
        expect_released(made);
    }
    {
        SCOPED_TRACE("a record in the default directory");
        const Pod made = make();
        fs::remove_all(node_.bpffs());
        lose_namespace(made);
        Json keys = broken_;
        keys["stateDir"] = node_.dir() + "/elsewhere";
        EXPECT_THAT(del(*made.container, keys), succeeds()) << "it names the lease's IPAM plugin";
        EXPECT_EQ(everything(), before_);
    }
}

// In main mode there is always one.
TEST_F(LostLeaseTest, WithoutARecordAConfigurationThatNamesNoPluginKeepsIt) {
    Json empty = node_.config();
    empty["ipam"] = Json::object();
    const std::vector<Json> configs = {{{"cniVersion", "1.0.0"},
                                        {"name", "pods"},
                                        {"bpffs", node_.bpffs()},
                                        {"plugins", Json::array({node_.config()})}},
                                       node_.config({{"ipam", nullptr}}),
                                       empty,
                                       node_.config({{"ipam", 3}}),
                                       node_.config({{"ipam", {{"type", "dhcp"}}}}),
                                       node_.config({{"ipam", {{"type", "podlane"}}}})};
    for (const Json &config : configs)
        for (const auto &[with_pins, by_gc] :
             {std::pair(true, false), std::pair(true, true), std::pair(false, false)}) {
            if (!with_pins && config.contains("type") && config.value("ipam", Json()).is_null())
                continue; // it may be a chain's
            SCOPED_TRACE(config.dump() + (with_pins ? "" : ", without pins") + (by_gc ? ", GC" : ""));
            const Pod made = make_unrecorded(with_pins);
            expect_refused(made, with_pins, config, 7, "no configuration names an IPAM plugin");
            if (by_gc) {
                EXPECT_THAT(gc(), succeeds());
            }
            expect_released(made);
        }
}

// Nothing but the record names its plugin.
TEST_F(LostLeaseTest, WithoutARecordPodlanectlGcKeepsIt) {
    const Pod dead = make_unrecorded(true);
    lose_namespace(dead);
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()),
                    prints(1, {"failed: ", "no record says which IPAM plugin has the lease", "DEL or GC"}));
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(everything(), before_);
}

// A record that this DEL made would keep the next ADD from a lease.
TEST_F(LostLeaseTest, WithoutARecordAPluginThatIsNotInstalledIsNotRecorded) {
    const Json nonesuch = node_.config(leases_of("nonesuch"));
    for (const auto &[with_pins, by_add] : {std::pair(true, false), std::pair(true, true), std::pair(false, false)}) {
        SCOPED_TRACE(std::string(with_pins ? "" : "without pins, ") + (by_add ? "ADD" : "DEL"));
        const Pod made = make_unrecorded(with_pins);
        expect_refused(made, with_pins, nonesuch, 50, "\"nonesuch\" is not in CNI_PATH");
        EXPECT_EQ(ctl_json("lease list"), Json::array());
        if (!by_add)
            expect_released(made);
        EXPECT_THAT(add(*made.container), succeeds());
        EXPECT_EQ(node_.leased().size(), 2U);
        expect_released(made);
    }
}

// Podlane has requested none.
TEST_F(LostLeaseTest, WithoutARecordAChainsConfigurationHasToNameNoPlugin) {
    const Json chained = {{"ipam", nullptr}, {"prevResult", {{"ips", {{{"address", "198.18.9.77/24"}}}}}}};
    const Json without_result = {{"ipam", nullptr}}, before_0_4 = {{"ipam", nullptr}, {"cniVersion", "0.3.1"}};
    for (const auto &[with_pins, keys] : std::vector<std::pair<bool, Json>>{{true, chained},
                                                                            {true, without_result},
                                                                            {true, leases_of("nonesuch")},
                                                                            {false, chained},
                                                                            {false, without_result},
                                                                            {false, before_0_4}}) {
        SCOPED_TRACE(keys.dump() + (with_pins ? "" : ", without pins"));
        const Pod made = make_unrecorded(with_pins, chained);
        EXPECT_THAT(del(*made.container, keys), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// At each call by which the maps and the interface change.
TEST_F(LostLeaseTest, WithoutARecordAKilledDelLosesNothing) {
    const Json config = node_.config({{"ipam", nullptr}});
    const auto killed_at = [&](const std::string &call, int number) {
        SCOPED_TRACE("killed at " + call + " " + std::to_string(number));
        const Pod made = make_unrecorded(true);
        const int calls = killed_del(*made.container, config, call, number);
        EXPECT_EQ(node_.leased().size(), 2U);
        expect_refused(made, true, config, 7, "no configuration names an IPAM plugin");
        expect_released(made);
        return calls;
    };
    for (const std::string call : {"bpf", "sendmsg", "flock"}) {
        const int calls = killed_at(call, 0);
        EXPECT_GT(calls, 0) << call;
        for (int last = calls; last > std::max(0, calls - 8); --last)
            (void)killed_at(call, last);
    }
}

// Without IgnoreUnknown host-local refuses them, and the lease would stay.
TEST_F(LostLeaseTest, ArgumentsThatAnIpamPluginRefusesKeepNoLease) {
    const std::string seen = node_.dir() + "/seen", ignoring = "IgnoreUnknown=1;K8S_POD_NAME=x;K8S_POD_NAMESPACE=y";
    put_ipam("seeing", "[ $CNI_COMMAND = DEL ] && echo \"$CNI_ARGS\" >" + seen + "\n" + real_);
    for (const auto &[at_add, at_del] :
         std::vector<std::pair<std::string, std::string>>{{ignoring, "K8S_POD_NAME=x;K8S_POD_NAMESPACE=y"},
                                                          {ignoring, "IgnoreUnknown=0;K8S_POD_NAME=x"},
                                                          {ignoring, "IgnoreUnknown=1;K8S_POD_NAME=other"},
                                                          {ignoring, "FOO=bar"},
                                                          {ignoring, ""},
                                                          {"", "K8S_POD_NAME=x"}})
        for (const bool is_recorded : {true, false}) {
            SCOPED_TRACE("\"" + at_add + "\", then \"" + at_del + (is_recorded ? "\"" : "\" without a record"));
            const Pod made = make(leases_of("seeing"), {{"CNI_ARGS", at_add}});
            if (!is_recorded)
                fs::remove(path_of(made));
            EXPECT_THAT(del(*made.container, leases_of("seeing"), {{"CNI_ARGS", at_del}}), succeeds());
            EXPECT_EQ(everything(), before_);
            if (is_recorded) {
                EXPECT_EQ(read_file(seen), at_add + "\n");
            }
        }
}

// Another attempt may find the lease.
TEST_F(LostLeaseTest, NoOtherEndOfTheIpamPluginSaysThatThereIsNoLease) {
    for (const std::string script :
         {"kill -KILL $$", "exec sleep 60", "exit 3", R"(echo '{"code":11,"msg":"the disk sleeps"}'; exit 1)",
          R"(echo '{"code":50,"msg":"no daemon"}'; exit 1)"}) {
        SCOPED_TRACE(script);
        put_ipam("broken", script);
        EXPECT_NE(del(*node_.container(), {{"ipam", {{"type", "broken"}}}, {"ipamTimeout", 1}}).rc, 0);
    }
}

// As with CNI_ARGS: it would refuse them too, and keep the lease.
TEST_F(LostLeaseTest, ArgumentsThatAreIgnoredAreNotHandedOn) {
    const std::string seen = node_.dir() + "/seen";
    put_ipam("seeing", "cat >" + seen);
    const auto handed = [&](const Json &keys) {
        Json all = {{"ipam", {{"type", "seeing"}}}};
        all.update(keys);
        EXPECT_THAT(del(*node_.container(), all), succeeds());
        return Json::parse(must_run(node_.ns(), {"cat", seen}));
    };
    const Json good = {{"runtimeConfig", {{"ips", {"192.0.2.3"}}}}, {"args", {{"cni", {{"ips", {"192.0.2.3"}}}}}}};
    Json now = handed({{"runtimeConfig", {{"ips", {"192.0.2.300"}}}}, {"args", good["args"]}});
    EXPECT_FALSE(now.contains("runtimeConfig"));
    EXPECT_EQ(now["args"], good["args"]);
    now = handed({{"runtimeConfig", good["runtimeConfig"]}, {"args", {{"cni", 7}}}, {"mtu", "much"}});
    EXPECT_FALSE(now.contains("args"));
    EXPECT_EQ(now["runtimeConfig"], good["runtimeConfig"]);
}

// It would wait for the locks of the call that runs it.
TEST_F(LostLeaseTest, PodlaneIsNoIpamPlugin) {
    const std::uint64_t began = monotonic_ns();
    const Json itself = {{"ipam", {{"type", "podlane"}}}, {"ipamTimeout", 3}};
    const auto container = node_.container();
    EXPECT_THAT(add(*container, itself), fails_with(7, {"names Podlane itself"}));
    Json renamed = node_.config({{"ipam", {{"type", "lane"}}}, {"type", "lane"}});
    EXPECT_THAT(node_.cni("podlane", "ADD", renamed, attachment(*container)), fails_with(7, {"\"lane\""}));
    Json status = node_.config(itself);
    status["cniVersion"] = "1.1.0";
    EXPECT_THAT(node_.cni("podlane", "STATUS", status), fails_with(7, {"names Podlane itself"}));
    // Records of ADDs from before it was refused.
    for (const bool by_gc : {false, true}) {
        AttachmentRecord record;
        record.container_id = container->id();
        record.ifname = "eth0";
        record.network = "pods";
        record.root = node_.bpffs();
        record.config = node_.config(itself).dump();
        require(records().write(record));
        EXPECT_THAT(by_gc ? gc() : del(*container), succeeds());
        EXPECT_TRUE(node_.records().empty());
    }
    EXPECT_LT(monotonic_ns() - began, 3 * kNsPerSecond);
    EXPECT_EQ(everything(), before_);
}

TEST_F(LostLeaseTest, ALeaseThatWaitsIsListedAndReleased) {
    put_ipam("former-ipam", real_);
    const Json keys = leases_of("former-ipam");
    const Pod made = make(keys, named("shop", "web-0"));
    EXPECT_EQ(ctl_json("lease list"), Json::array());
    node_.remove_plugin("former-ipam");
    EXPECT_THAT(del(*made.container, keys), succeeds());
    const Json listed = ctl_json("lease list");
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_THAT(listed.at(0), has_members({{"pod", "shop/web-0"},
                                           {"network", "pods"},
                                           {"state", "waits"},
                                           {"seconds_left", nullptr},
                                           {"addresses", {made.text4(), made.text6()}},
                                           {"container_id", made.container->id()}}));
    const std::string release = "lease release --container " + made.container->id();
    for (const std::string &command : {release, std::string("lease release --all")})
        EXPECT_THAT(ctl(command), complains(1, {"\"former-ipam\" is not in CNI_PATH", "hint: "}));
    EXPECT_EQ(ctl_json("lease list"), listed);
    const std::string gc = "gc --bin-dir " + node_.plugins();
    EXPECT_THAT(ctl(gc), prints(0, {"kept: its lease waits (podlanectl lease list)"}));
    EXPECT_EQ(ctl_json("lease list"), listed);
    const Json found = find(ctl_json("doctor"), "check", "waiting-lease");
    ASSERT_TRUE(found.is_object());
    EXPECT_EQ(found.at("severity"), "notice");
    EXPECT_THAT(found.at("finding").get<std::string>(), HasSubstr("shop/web-0, container " + made.container->id()));
    EXPECT_THAT(found.at("remedy").get<std::string>(), HasSubstr(release + " --bpffs " + node_.bpffs()));
    put_ipam("former-ipam", real_);
    EXPECT_THAT(ctl(release), prints(0, {"released " + made.text4()}));
    EXPECT_EQ(ctl_json("lease list"), Json::array());
    EXPECT_THAT(ctl(gc), prints(0, {"nothing to collect"}));
    EXPECT_EQ(everything(), before_);
}

// As after a reboot into another kernel, which numbers network namespaces differently.
class RebootedTest : public LostLeaseTest {
  protected:
    void reboot(const Pod &made) const {
        AttachmentRecord record = *require(records().find(made.container->id(), "eth0"));
        record.boot_id = "00000000-0000-0000-0000-000000000000";
        ++record.node_netns;
        require(records().write(record));
        if (!record.only_lease)
            lose_namespace(made);
        fs::remove_all(node_.bpffs());
    }
};

// A runtime's GC is for one network.
TEST_F(RebootedTest, TheLeasesOfANetworkThatWasRenamedAreFoundAndCollected) {
    const Pod made = make();
    reboot(made);
    EXPECT_THAT(gc({}, {{"name", "renamed"}}), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    const Json found = find(ctl_json("doctor"), "check", "earlier-boot");
    ASSERT_TRUE(found.is_object());
    EXPECT_EQ(found.at("severity"), "notice");
    EXPECT_EQ(found.at("remedy"), "podlanectl gc --bpffs " + node_.bpffs());
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_TRUE(find(ctl_json("doctor"), "check", "earlier-boot").is_null());
    EXPECT_EQ(everything(), before_);
}

TEST_F(RebootedTest, DelAndGcFindTheRecordOfAnotherRoot) {
    for (const std::string by : {"DEL", "GC"}) {
        SCOPED_TRACE(by);
        const Json edited = {{"bpffs", node_.bpffs() + "-edited"}};
        const Pod made = make();
        reboot(made);
        EXPECT_THAT(by == "DEL" ? del(*made.container, edited) : gc({}, edited), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(RebootedTest, ALeaseThatWaitsIsAFinding) {
    put_ipam("former-ipam", real_);
    const Json keys = leases_of("former-ipam");
    const Pod made = make(keys);
    node_.remove_plugin("former-ipam");
    EXPECT_THAT(del(*made.container, keys), succeeds());
    reboot(made);
    EXPECT_TRUE(find(ctl_json("doctor"), "check", "waiting-lease").is_object());
    put_ipam("former-ipam", real_);
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
