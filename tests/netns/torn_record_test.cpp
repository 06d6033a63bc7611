// SPDX-License-Identifier: MIT
// A record on disk that is torn, gone or another attachment's while the pod lives: doctor, repair and DEL agree.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TornRecordTest : public CtlTest {
  protected:
    [[nodiscard]] std::string path_of(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    }
    // The part that the ADD has added after it had begun.
    void tear(const Pod &made) const {
        const std::string whole = must_run(node_.ns(), {"cat", path_of(made)});
        fs::resize_file(path_of(made), whole.rfind("podlane-record ") + 60);
    }
    // A container of which nothing is left but its lease and a file that is torn from the beginning; no maps either.
    [[nodiscard]] Pod make_dead() {
        Pod dead = make();
        fs::resize_file(path_of(dead), 0);
        fs::remove_all(node_.bpffs());
        lose_namespace(dead);
        return dead;
    }
    // A plugin that is host-local but for what it does at the DEL of this container, which it notes.
    void put_ipam(const std::string &name, const Pod &of, const std::string &at_del) const {
        node_.put_plugin(name, "#!/bin/sh\nif [ $CNI_COMMAND:$CNI_CONTAINERID = DEL:" + of.container->id() +
                                   " ]; then\necho >>" + node_.dir() + "/" + name + ".calls\n" + at_del +
                                   "\nfi\nexec " + variable("CNI_PLUGINS") + "/host-local\n");
    }
    [[nodiscard]] std::ptrdiff_t calls_of(const std::string &name) const {
        std::ifstream file(node_.dir() + "/" + name + ".calls");
        return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    }
    // Each read of this record fails, as on a file system that is damaged.
    [[nodiscard]] Output run_beside_unread(const Pod &made, const std::vector<std::string> &command,
                                           const std::string &input = {}, const Variables &variables = {}) const {
        auto argv = words("strace -f -qq -o /dev/null -e trace=read -e inject=read:error=EIO -P");
        argv.push_back(path_of(made));
        argv.insert(argv.end(), command.begin(), command.end());
        return run(node_.ns(), argv, input, variables);
    }

    const std::string before_ = everything();
};

TEST_F(TornRecordTest, IsNamedByDoctorAndRepairAndDeleted) {
    const Pod made = make({{"ipMasq", true}});
    const Pod whole = make({{"ipMasq", true}});
    tear(made);
    for (const std::string command : {"doctor", "repair"}) {
        const Output output = ctl(command);
        EXPECT_THAT(output, prints(0, {"its record in /var/lib/podlane is torn"})) << command;
        EXPECT_THAT(output.out, Not(HasSubstr("expected a JSON object")));
    }
    EXPECT_THAT(check(made, {{"ipMasq", true}}), succeeds());
    for (const Pod *pod : {&made, &whole})
        EXPECT_THAT(del(*pod->container, {{"ipMasq", true}}), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, WithoutTheMapsIsNoLongerInvisible) {
    const Pod made = make();
    tear(made);
    fs::remove_all(node_.bpffs());
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {made.host_ifname + " of container " + made.container->id() + ", eth0 is " +
                                             "not in the maps, and its record on disk is torn"}))
            << command;
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_TRUE(host_link(made).is_null());
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(made.host_ifname)));
    EXPECT_TRUE(node_.leased().empty());
}

// Another pod's record has the network's configuration.
TEST_F(TornRecordTest, WithoutARecordMasqueradingIsRepairedByAnotherPods) {
    const Json keys = {{"ipMasq", true}, {"noMasquerade", {"192.0.2.0/24"}}};
    const Pod made = make(keys), other = make(keys);
    const std::string rules = node_.run("nft list ruleset");
    fs::remove(path_of(made));
    const std::string says = "that masquerade " + made.host_ifname + " are gone";
    for (const std::string &lost :
         {"nft delete element inet podlane-pods pods4 {" + made.text4() + "}", std::string("nft flush ruleset")}) {
        SCOPED_TRACE(lost);
        node_.run(lost);
        EXPECT_THAT(ctl("doctor"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0, {says}));
        EXPECT_THAT(check(made, keys), succeeds());
        EXPECT_EQ(node_.run("nft list ruleset"), rules);
    }
    for (const Pod *pod : {&made, &other})
        EXPECT_THAT(del(*pod->container, keys), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, WithoutAnyRecordLostMasqueradingIsWrong) {
    const Pod made = make({{"ipMasq", true}});
    fs::remove(path_of(made));
    EXPECT_THAT(ctl("repair"), prints(0, {"is gone, or cannot be read"}));
    node_.run("nft flush ruleset");
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {"that masquerade " + made.host_ifname + " are gone", "sandbox"}))
            << command;
    EXPECT_THAT(del(*made.container, {{"ipMasq", true}}), succeeds());
    EXPECT_EQ(everything(), before_);
}

// An administrator's copy of a file, or one file in the place of another.
TEST_F(TornRecordTest, OfAnotherNameThanItsAttachmentIsNone) {
    const Pod made = make(), other = make();
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    fs::copy_file(path_of(made), path_of(made) + ".bak");
    EXPECT_EQ(require(records.list()).size(), 2U);
    fs::copy_file(path_of(made), path_of(other), fs::copy_options::overwrite_existing);
    EXPECT_EQ(require(records.list()).size(), 1U);
    EXPECT_FALSE(require(records.find(other.container->id(), "eth0")));
    EXPECT_THAT(ctl("doctor"), prints(0, {"is gone, or cannot be read"}));
    EXPECT_THAT(del(*other.container), succeeds());
    EXPECT_FALSE(host_link(made).is_null()) << "the record said its namespace, and its interface";
    EXPECT_THAT(check(made), succeeds());
    fs::remove(path_of(made) + ".bak");
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, ThatCannotBeReadCountsAsNoneAndTheOthersAreRestored) {
    const Json keys = {{"ipMasq", true}};
    const Pod unread = make(keys), other = make(keys);
    const std::string named = "reading " + path_of(unread) + ": Input/output error";
    const auto named_by = [&](const std::string &command) {
        const Output output = run_beside_unread(unread, ctl_argv(node_.bpffs(), command));
        EXPECT_EQ(output.rc, 1);
        EXPECT_THAT(output.out, HasSubstr(named)) << command;
    };
    fs::remove_all(node_.bpffs());
    named_by("doctor");
    named_by("repair");
    EXPECT_THAT(check(other, keys), succeeds());
    node_.run("nft flush ruleset");
    named_by("repair");
    EXPECT_THAT(check(other, keys), succeeds());
    EXPECT_THAT(ctl("repair"), prints(0));
    for (const Pod *pod : {&unread, &other})
        EXPECT_THAT(check(*pod, keys), succeeds());
    for (const Pod *pod : {&unread, &other})
        EXPECT_THAT(del(*pod->container, keys), succeeds());
    EXPECT_EQ(everything(), before_);
}

// As on a disk that fails once: the next ADD or DEL tries again.
TEST_F(TornRecordTest, ThatCouldNotBeReadIsRestoredByALaterCall) {
    for (const std::string command : {"ADD", "DEL"}) {
        const Pod unread = make(), other = make();
        fs::remove_all(node_.bpffs());
        const auto later = node_.container(), last = node_.container();
        for (const auto &container : {later, last}) {
            const bool is_first = container == later;
            SCOPED_TRACE(command + (is_first ? ", beside it" : ", after it"));
            Variables variables = attachment(*container);
            variables.insert({{"CNI_COMMAND", is_first ? "ADD" : command}, {"CNI_PATH", node_.plugins()}});
            const std::vector<std::string> plugin = {node_.plugins() + "/podlane"};
            const std::string config = node_.config().dump();
            const Reply reply = to_reply(is_first ? run_beside_unread(unread, plugin, config, variables)
                                                  : run(node_.ns(), plugin, config, variables));
            EXPECT_THAT(reply, succeeds());
            if (is_first)
                EXPECT_THAT(reply.err, HasSubstr("reading " + path_of(unread) + ": Input/output error"));
            EXPECT_THAT(check(other), succeeds());
        }
        EXPECT_THAT(check(unread), succeeds());
        for (const Container *one : {unread.container.get(), other.container.get(), later.get(), last.get()})
            EXPECT_THAT(del(*one), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

// After a power cut: the file's name is all that says that there is a lease.
TEST_F(TornRecordTest, FromTheBeginningIsKeptForAGcThatReleasesItsLease) {
    const Json others = {{"name", "others"}, {"ipam", {{"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}}};
    for (const std::string by : {"GC", "GC of another network", "gc"}) {
        SCOPED_TRACE(by);
        const Pod dead = make(), living = make(), other = make();
        for (const Pod *torn : {&dead, &living})
            fs::resize_file(path_of(*torn), 0);
        fs::remove_all(node_.bpffs());
        lose_namespace(dead);
        const Pod later = make(others); // it reads all records
        EXPECT_THAT(gc({&dead, &later}, others), succeeds());
        EXPECT_TRUE(fs::exists(path_of(dead))) << "its runtime knows it";
        if (by == "gc")
            EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
        else
            EXPECT_THAT(by == "GC" ? gc({&living, &other}) : gc({&later}, others), succeeds());
        EXPECT_FALSE(fs::exists(path_of(dead)));
        EXPECT_TRUE(fs::exists(path_of(living))) << "its interface is there";
        EXPECT_THAT(node_.leased(), Not(testing::Contains(dead.text4())));
        EXPECT_THAT(node_.leased(), testing::IsSupersetOf({living.text4(), living.text6(), other.text4()}));
        for (const Pod *pod : {&living, &other})
            EXPECT_THAT(del(*pod->container), succeeds());
        EXPECT_THAT(del(*later.container, others), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(TornRecordTest, APluginThatRefusesAnUnknownContainerKeepsNoLease) {
    const Json others = {{"name", "others"},
                         {"ipam", {{"type", "other-ipam"}, {"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}},
                         {"args", {{"added", "by-the-runtime"}}}};
    const std::string input = node_.dir() + "/input";
    const Pod dead = make_dead();
    put_ipam("other-ipam", dead, "cat >" + input + R"(; echo '{"code":7,"msg":"unknown container"}'; exit 1)");
    put_ipam("host-local", dead, "");
    const Pod living = make(), other = make(others);
    EXPECT_THAT(gc({&living}), succeeds());
    EXPECT_FALSE(fs::exists(path_of(dead)));
    EXPECT_THAT(node_.leased(), Not(testing::Contains(dead.text4())));
    EXPECT_EQ(calls_of("other-ipam"), 1);
    const std::string handed = must_run(node_.ns(), {"cat", input});
    EXPECT_THAT(handed, HasSubstr("198.18.30.0/24"));
    EXPECT_THAT(handed, Not(HasSubstr("by-the-runtime"))) << "it was added for the other pod";
    // The second, with a version of CNI that it supports. The GC's network is on record, too.
    EXPECT_EQ(calls_of("host-local"), 2);
    EXPECT_THAT(del(*living.container), succeeds());
    EXPECT_THAT(del(*other.container, others), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, APluginThatHangsIsCalledOnceAndTheFilesStay) {
    const Json others = {{"name", "others"},
                         {"ipam", {{"type", "other-ipam"}, {"ranges", {{{{"subnet", "198.18.30.0/24"}}}}}}}};
    const Pod first = make(), second = make();
    for (const Pod *dead : {&first, &second})
        fs::resize_file(path_of(*dead), 0);
    fs::remove_all(node_.bpffs());
    for (const Pod *dead : {&first, &second})
        lose_namespace(*dead);
    put_ipam("other-ipam", first, "");
    const Pod other = make(others);
    const std::string notes = node_.dir() + "/hangs";
    node_.put_plugin("other-ipam", "#!/bin/sh\necho >>" + notes + R"(; echo '{"code":11,"msg":"down"}'; exit 1)");
    EXPECT_THAT(gc(), succeeds());
    EXPECT_EQ(fs::file_size(notes), 1U);
    EXPECT_THAT(node_.leased(), Not(testing::Contains(first.text4())));
    for (const Pod *dead : {&first, &second})
        EXPECT_TRUE(fs::exists(path_of(*dead)));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"kept: its record is torn", "down"}));
    put_ipam("other-ipam", first, "");
    EXPECT_THAT(gc(), succeeds());
    for (const Pod *dead : {&first, &second})
        EXPECT_FALSE(fs::exists(path_of(*dead)));
    EXPECT_THAT(del(*other.container, others), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, WithoutAnIpamPluginOnRecordTheFileStays) {
    const Pod dead = make_dead();
    EXPECT_THAT(gc({}, {{"ipam", nullptr}}), succeeds());
    EXPECT_TRUE(fs::exists(path_of(dead)));
    EXPECT_THAT(node_.leased(), testing::Contains(dead.text4()));
    EXPECT_THAT(ctl("doctor"),
                prints(0, {"is torn: " + path_of(dead), "remedy  a GC of the runtime; no other record"}));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"kept: ", "no other record names an IPAM plugin"}));
    EXPECT_THAT(gc(), succeeds());
    EXPECT_FALSE(fs::exists(path_of(dead)));
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(TornRecordTest, OfNoPodIsANoticeOfItsRootAlone) {
    const Pod dead = make_dead(), living = make();
    fs::resize_file(path_of(living), 0);
    const Pod other = make();
    const std::string torn = " is torn: ";
    const Output output = ctl("doctor");
    EXPECT_THAT(output, prints(0, {"container " + dead.container->id() + ", eth0" + torn + path_of(dead),
                                   "remedy  podlanectl gc --bpffs " + node_.bpffs()}));
    EXPECT_THAT(output.out, Not(HasSubstr(torn + path_of(living))));
    EXPECT_THAT(run(node_.ns(), ctl_argv(node_.bpffs() + "-other", "doctor")).out, Not(HasSubstr(torn)));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(torn)));
    for (const Pod *pod : {&living, &other})
        EXPECT_THAT(del(*pod->container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// GC has seen the torn record, and removes another container first.
TEST_F(TornRecordTest, OfAContainerThatComesBackDuringAGcStaysItsOwn) {
    const Pod dead = make_dead(), gone = make();
    lose_namespace(gone);
    const auto again = node_.container(dead.container->id());
    const std::string config = node_.dir() + "/config", answer = node_.dir() + "/answer";
    std::ofstream(config) << node_.config();
    put_ipam("host-local", gone,
             "CNI_COMMAND=ADD CNI_CONTAINERID=" + again->id() + " CNI_NETNS=" + again->path() + " " + node_.plugins() +
                 "/podlane <" + config + " >" + answer + " || exit 1");
    EXPECT_THAT(gc(), succeeds());
    std::ifstream answered(answer);
    const Pod back = look_at(again, Json::parse(answered));
    EXPECT_TRUE(fs::exists(path_of(back)));
    EXPECT_THAT(node_.leased(), testing::UnorderedElementsAre(back.text4(), back.text6()));
    EXPECT_THAT(check(back), succeeds());
    EXPECT_THAT(del(*again), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(TornRecordTest, UninstallReleasesItsLeaseOrNamesTheFile) {
    const std::string uninstall = "uninstall --conf-dir " + node_.dir() + " --bin-dir " + node_.dir();
    const Pod dead = make_dead();
    const std::string container = "container " + dead.container->id() + ", eth0";
    EXPECT_THAT(ctl(uninstall), prints(1, {"kept: the torn record of " + container, path_of(dead)}));
    EXPECT_TRUE(fs::exists(path_of(dead)));
    const Pod living = make();
    EXPECT_THAT(ctl(uninstall), prints(0, {"released the lease of " + container}));
    EXPECT_FALSE(fs::exists(path_of(dead)));
    EXPECT_THAT(node_.leased(), testing::UnorderedElementsAre(living.text4(), living.text6()));
    EXPECT_THAT(del(*living.container), succeeds());
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(TornRecordTest, BesideOneThatCannotBeReadGcRemovesTheOthers) {
    const Pod unread = make(), dead = make_dead(), gone = make();
    lose_namespace(gone);
    const Output output = run_beside_unread(unread, ctl_argv(node_.bpffs(), "gc --bin-dir " + node_.plugins()));
    EXPECT_EQ(output.rc, 1);
    EXPECT_THAT(output.out, HasSubstr("removed"));
    EXPECT_THAT(output.err, HasSubstr("reading " + path_of(unread) + ": Input/output error"));
    EXPECT_TRUE(fs::exists(path_of(dead)));
    EXPECT_THAT(ctl("gc --bin-dir " + node_.plugins()), prints(0, {"removed"}));
    EXPECT_FALSE(fs::exists(path_of(dead)));
    EXPECT_THAT(del(*unread.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
