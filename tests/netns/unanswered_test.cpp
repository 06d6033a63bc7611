// SPDX-License-Identifier: MIT
// A system call that fails is no answer: whoever needs one fails with the call's error, and changes nothing.
#include "loader/record.hpp"
#include "tests/netns/ctl_node.hpp"

namespace podlane::test {
namespace {

class UnansweredTest : public NodeTest {
  protected:
    using Options = std::vector<std::string>;
    // As options of strace(1): these calls fail; with a path, those that are about it.
    [[nodiscard]] static Options failing(const std::string &calls, const std::string &error,
                                         const std::string &path = {}) {
        Options all = {
            "strace", "-qq", "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=" + error};
        if (!path.empty())
            all.insert(all.end(), {"-P", path});
        return all;
    }
    [[nodiscard]] Reply call(const std::string &verb, const Container &container, Options argv,
                             const Json &keys = Json::object()) const {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", verb}, {"CNI_PATH", node_.plugins()}});
        const Json config = verb == "GC" ? gc_config({}, keys) : node_.config(keys);
        return to_reply(run(node_.ns(), argv, config.dump(), variables));
    }
    [[nodiscard]] Output ctl_under(Options argv, const std::string &command) const {
        std::ranges::move(ctl_argv(node_.bpffs(), command), std::back_inserter(argv));
        return run(node_.ns(), argv);
    }
    // The doctor's finding of this check, under the fault.
    [[nodiscard]] std::string found_under(Options fault, const std::string &check) const {
        fault.insert(fault.begin() + 1, "-f"); // it has threads
        const Output output = ctl_under(fault, "doctor --json");
        const Json found = find(Json::parse(output.out, nullptr, false), "check", check);
        EXPECT_TRUE(found.is_object()) << check << ": " << output.out << output.err;
        return found.is_object() ? found.at("finding").get<std::string>() : "";
    }
    // ADD of another pod, DEL and GC fail like this; the next ones succeed.
    void expect_no_verb_goes_on(const Options &fault, int code, const Parts &says,
                                const std::vector<std::string> &verbs = {"ADD", "DEL", "GC"}) {
        const Pod made = make();
        const auto other = node_.container();
        const std::string whole = everything();
        for (const std::string &verb : verbs) {
            SCOPED_TRACE(verb);
            EXPECT_THAT(call(verb, verb == "ADD" ? *other : *made.container, fault), fails_with(code, says));
            EXPECT_EQ(everything(), whole);
            EXPECT_THAT(check(made), succeeds());
        }
        EXPECT_THAT(add(*other), succeeds());
        for (const Container *one : {&*made.container, &*other})
            EXPECT_THAT(del(*one), succeeds());
        EXPECT_EQ(everything(), before_);
    }

    // A DEL goes on beside an ADD that does not end, and so without a turn.
    void expect_no_turn(const Options &fault, const std::string &says) {
        expect_no_verb_goes_on(fault, 5, {says}, {"ADD", "GC"});
        const Pod made = make();
        const Reply reply = call("DEL", *made.container, fault);
        EXPECT_THAT(reply, succeeds());
        EXPECT_THAT(reply.err, has_all({says, "this DEL waits for no ADD of container " + made.container->id()}));
        EXPECT_EQ(everything(), before_);
    }

    const std::string before_ = everything(), turns_ = std::string(kStateDirectory) + "/.turns";
};

TEST_F(UnansweredTest, ALockThatFailsIsNotFree) {
    expect_no_turn(failing("fcntl", "ENOLCK", turns_), "locking .turns");
}

TEST_F(UnansweredTest, AFileOfLocksThatCannotBeOpenedIsNotMissing) {
    const Options fault = failing("openat", "EMFILE", turns_);
    expect_no_turn(fault, "opening " + turns_ + ": Too many open files");
    const std::string uninstall = "uninstall --bin-dir " + bin() + " --conf-dir " + conf();
    EXPECT_THAT(ctl_under(fault, uninstall), complains(1, {"opening " + turns_ + ": Too many open files"}));
    EXPECT_TRUE(fs::exists(turns_)) << "whoever has a lock of it would have one that nobody sees";
    EXPECT_THAT(ctl(uninstall), prints(0));
    EXPECT_FALSE(fs::exists(turns_));
}

// The maps of another network namespace would be taken for this one's.
TEST_F(UnansweredTest, AnOwnerThatCannotBeReadIsNotNone) {
    const std::string link = node_.bpffs() + "/live/netns";
    expect_no_verb_goes_on(failing("?readlink,readlinkat", "EIO", link), 101, {"reading " + link});
}

// It would be recorded as none, and be another one than the recorded one.
TEST_F(UnansweredTest, ACookieThatCannotBeReadIsNotNone) {
    const Pod made = make();
    const std::string whole = everything();
    const Options fault = failing("getsockopt", "EIO");
    const Parts says = {"reading the cookie of a network namespace"};
    EXPECT_THAT(call("ADD", *node_.container(), fault), fails_with(5, says));
    EXPECT_THAT(call("CHECK", *made.container, fault, {{"prevResult", made.result}}), fails_with(5, says));
    EXPECT_EQ(everything(), whole);
    EXPECT_THAT(del(*made.container), succeeds());
}

// Nobody knows then whether the container that had the ID lives.
TEST_F(UnansweredTest, ANamespaceThatCannotBeOpenedIsNotDead) {
    const Pod made = make();
    const auto other = node_.container(made.container->id());
    const std::string whole = everything();
    EXPECT_THAT(call("ADD", *other, failing("openat", "EMFILE", made.container->path())),
                fails_with(4, {"opening the network namespace " + made.container->path(), "Too many open files"}));
    EXPECT_EQ(everything(), whole);
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(add(*other), succeeds());
    EXPECT_THAT(del(*other), succeeds());
}

// Nobody knows then whether it is as planned.
TEST_F(UnansweredTest, AContainerThatCannotBeLookedIntoIsNotGone) {
    const Pod made = make();
    const std::string says = "opening the network namespace " + made.container->path() + ": Too many open files";
    Options fault = failing("openat", "EMFILE", made.container->path());
    fault.insert(fault.begin() + 1, "-f"); // doctor has threads
    EXPECT_THAT(ctl_under(fault, "endpoint show " + made.host_ifname), complains(2, {says}));
    const Output found = ctl_under(fault, "doctor --json");
    EXPECT_EQ(found.rc, 1);
    const Json unseen = find(Json::parse(found.out, nullptr, false), "check", "pod-link");
    ASSERT_TRUE(unseen.is_object()) << found.out << found.err;
    EXPECT_THAT(unseen.at("finding").get<std::string>(), HasSubstr("cannot be checked: " + says));
    EXPECT_EQ(unseen.at("severity"), "wrong");
    EXPECT_TRUE(find(ctl_json("doctor"), "check", "pod-link").is_null());
    EXPECT_EQ(ctl_json("endpoint show " + made.host_ifname).at(0).at("plan"), "as-planned");
}

// A limit that podlanectl has set may hold there, which nothing shows any more.
TEST_F(UnansweredTest, ALimiterThatCannotBeReachedIsNotRestored) {
    const Pod made = make();
    const auto other = node_.container();
    fs::remove_all(node_.bpffs());
    const Reply reply = call("ADD", *other, failing("openat", "EMFILE", made.container->path()));
    EXPECT_THAT(reply, succeeds());
    EXPECT_THAT(reply.err, has_all({"has lost its entries in the maps: opening the network namespace " +
                                    made.container->path() + ": Too many open files"}));
    EXPECT_THAT(check(made), succeeds());
    for (const Container *one : {&*made.container, &*other})
        EXPECT_THAT(del(*one), succeeds());
}

// A configuration without it would leave pods without hostPort.
TEST_F(UnansweredTest, APortmapThatCannotBeLookedForIsNotMissing) {
    const std::string install = "install --subnets 198.18.1.0/24 --bin-dir " + bin() + " --conf-dir " + conf() +
                                " --plugin " + variable("PODLANE_BIN"),
                      portmap = bin() + "/portmap";
    EXPECT_THAT(ctl_under(failing("?access,?faccessat,?faccessat2", "EIO", portmap), install),
                complains(1, {portmap + ": Input/output error"}));
    std::ofstream(portmap) << "no program\n";
    EXPECT_THAT(ctl(install), complains(1, {portmap + ": Permission denied", "chmod 755 " + portmap}));
    EXPECT_TRUE(fs::is_empty(conf()));
    EXPECT_THAT(ctl(install + " --mode chained").err, testing::Not(HasSubstr("portmap"))) << "it is not needed there";
    fs::remove(portmap);
    EXPECT_THAT(ctl(install), prints(0));
}

TEST_F(UnansweredTest, APluginThatCannotBeRunIsNotMissing) {
    const Pod dead = make();
    lose_namespace(dead);
    const std::string gc = "gc --bin-dir " + bin(), plugin = bin() + "/podlane";
    std::ofstream(plugin) << "no program\n";
    EXPECT_THAT(ctl(gc), complains(1, {plugin + ": Permission denied", "chmod 755 " + plugin}));
    EXPECT_THAT(ctl_under(failing("?access,?faccessat,?faccessat2", "EIO", plugin), gc),
                complains(1, {plugin + ": Input/output error"}));
    std::ofstream(plugin) << "#!/bin/sh\nkill -SEGV $$\n";
    fs::permissions(plugin, fs::perms::owner_all);
    EXPECT_THAT(ctl(gc), prints(1, {"its DEL was killed by signal 11 (Segmentation fault)", "journalctl -k"}));
    std::ofstream(plugin) << "#!/bin/sh\necho '{\"code\": 101, \"msg\": \"no such map\"}'\nexit 1\n";
    EXPECT_THAT(ctl(gc), prints(1, {"its DEL: no such map (code 101)"}));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
}

// To boot another kernel would be no remedy, nor to install another plugin.
TEST_F(UnansweredTest, AFileThatTheDoctorCannotLookForIsNotMissing) {
    (void)make();
    const std::string accesses = "?access,?faccessat,?faccessat2";
    const std::string types = "/sys/kernel/btf/vmlinux", socket = "/run/containerd/containerd.sock";
    for (const std::string error : {"EIO", "EACCES", "EPERM", "ENOMEM"})
        EXPECT_THAT(found_under(failing(accesses, error, types), "btf"),
                    StartsWith("cannot be checked: reading " + types))
            << error;
    EXPECT_THAT(found_under(failing(accesses, "EIO", socket), "loopback"),
                StartsWith("cannot be checked: looking for " + socket));
}

// A second one, mounted over it, would hide what is pinned there.
TEST_F(UnansweredTest, ABpffsThatCannotBeLookedForIsMounted) {
    const std::string says = "looking for /sys/fs/bpf: Input/output error";
    const Options fault = failing("?stat,?newfstatat,?statx", "EIO", "/sys/fs/bpf");
    const auto under = [&](const std::string &command) {
        Options argv = fault;
        std::ranges::move(ctl_argv("/sys/fs/bpf/podlane-never", command), std::back_inserter(argv));
        return run(node_.ns(), argv);
    };
    for (const char *command : {"endpoint list", "map list", "metrics"}) {
        const Output output = under(command);
        EXPECT_THAT(output, complains(1, {says})) << command;
        EXPECT_THAT(output.err, Not(HasSubstr("mount"))) << command;
    }
    for (const char *command : {"status", "doctor"})
        EXPECT_THAT(under(command), prints(1, {says})) << command;
    EXPECT_THAT(under("repair").out, Not(HasSubstr("no bpffs is mounted")));
}

TEST_F(UnansweredTest, AnInterfaceThatCannotBeLookedForIsNotGone) {
    const Pod made = make({{"uplinks", {"up0"}}});
    const Options fault = failing("ioctl", "EIO");
    EXPECT_THAT(ctl_under(fault, "explain --from up0 --source 192.0.2.1 --to " + made.text4()),
                complains(1, {"looking for interface up0: Input/output error"}));
    const std::string says = "looking for interface " + std::to_string(made.ifindex) + ": Input/output error";
    EXPECT_THAT(ctl_under(fault, "status"), complains(1, {says}));
    const std::string uplink = "looking for interface " + std::to_string(uplink_ifindex()) + ": Input/output error";
    EXPECT_THAT(ctl_under(fault, "uplink list"), complains(1, {uplink}));
    EXPECT_THAT(ctl_under(fault, "uplink detach up0"), complains(1, {": Input/output error"}));
    EXPECT_EQ(programs(uplink_ifindex(), Hook::ingress).size(), 1U);
}

// In a restricted container: processes hide their namespaces, and pods that live there would be removed.
TEST_F(UnansweredTest, ANamespaceThatAProcessHidesIsNotGone) {
    const Pod made = make();
    Options without{"setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace"};
    const std::string gc = "gc --dry-run --bin-dir " + node_.plugins();
    EXPECT_THAT(ctl_under(without, gc), prints(0, {"nothing to collect"}));
    EXPECT_THAT(ctl_under(without, "doctor"), prints(0)) << "its namespace is mounted";
    EXPECT_THAT(ctl_under(without, "endpoint show " + made.host_ifname), prints(0, {"everything is as planned"}));
    EXPECT_THAT(ctl_under(without, "bandwidth set " + made.host_ifname + " --ingress 8M"), prints(0));
    std::ofstream(node_.dir() + "/umount.sh") << "umount -l " + made.container->path() + "\nexec \"$@\"\n";
    Options unmounted{"unshare", "-m", "sh", node_.dir() + "/umount.sh"};
    std::ranges::copy(without, std::back_inserter(unmounted));
    EXPECT_THAT(ctl_under(unmounted, "doctor"), prints(1, {"cannot be checked: ", "/ns/net: Permission denied"}));
    EXPECT_THAT(ctl_under(unmounted, "endpoint show " + made.host_ifname).out,
                AllOf(HasSubstr("/ns/net: Permission denied"), Not(HasSubstr("is not found"))));
    node_.run("ip link set " + made.host_ifname + " down");
    const std::string down = "the host-side veth " + made.host_ifname + " is down";
    EXPECT_THAT(ctl_under(unmounted, "doctor"), prints(1, {"cannot be checked: ", down})) << "it hides nothing else";
    EXPECT_THAT(ctl_under(unmounted, "repair"), prints(1, {"cannot be checked: ", down}));
    EXPECT_EQ(host_link(made).at("operstate"), "UP") << "the rest needs the container's namespace";
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_THAT(ctl("doctor"), prints(0));
}

TEST_F(UnansweredTest, ARecordOrALeaseThatCannotBeReadIsNotGone) {
    const Pod made = make();
    const std::string record =
        AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    EXPECT_THAT(found_under(failing("openat", "EIO", record), "plan"),
                StartsWith("cannot be checked: reading " + record));
    const std::string lease = node_.leases() + "/pods/" + made.text4();
    EXPECT_THAT(found_under(failing("openat", "EIO", lease), "lease-file"),
                StartsWith("cannot be checked: reading " + lease));
    EXPECT_EQ(ctl_json("doctor"), Json::array());
}

// Installed all the same: neither answer says that kube-proxy has no rules, or that a pod needs no plugin.
TEST_F(UnansweredTest, AProgramThatFailsHasNotAnswered) {
    const std::string tools = node_.dir() + "/tools", files = " --bin-dir " + bin() + " --conf-dir " + conf();
    fs::create_directory(tools);
    node_.put_plugin("nft", "#!/bin/sh\necho no tables today >&2\nexit 1\n");
    fs::rename(node_.plugins() + "/nft", tools + "/nft");
    const auto install = ctl_argv(node_.bpffs(), "install --dry-run --subnets 198.18.1.0/24 --plugin " +
                                                     variable("PODLANE_BIN") + files);
    EXPECT_THAT(run(node_.ns(), install, "", {{"PATH", tools + ":/usr/sbin:/usr/bin:/sbin:/bin"}}),
                prints(0, {"kube-proxy: its mode is not known: " + tools + "/nft: no tables today"}));
    const Pod made = make();
    fs::copy(variable("PODLANE_BIN"), bin() + "/podlane");
    EXPECT_THAT(ctl_under(failing("?access,?faccessat,?faccessat2", "EIO", bin() + "/podlane"), "uninstall" + files),
                complains(1, {"looking for " + bin() + "/podlane: Input/output error"}));
    EXPECT_THAT(ctl("uninstall" + files), prints(0, {"kept, for the DEL of 1 pods: " + bin() + "/podlane"}));
    EXPECT_THAT(del(*made.container), succeeds());
}

} // namespace
} // namespace podlane::test
