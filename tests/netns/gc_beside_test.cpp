// SPDX-License-Identifier: MIT
// A container that is started again under the same ID, while GC, gc, lease release or uninstall is about to collect
// what its first life left, lives. So do those whose namespaces gc cannot see from where it runs, and leases of ADDs
// that the runtime's list cannot name stay.
#include "tests/netns/ctl_node.hpp"

#include <sys/mount.h>

#include <future>

namespace podlane::test {
namespace {

class GcBesideTest : public NodeTest {
  protected:
    ~GcBesideTest() override { fs::remove(asleep_); }

    // The first call of this verb to the IPAM plugin sleeps while the file is there, and notes for which container.
    // `then`: the plugin's own part of the script.
    void sleep_in(const std::string &verb, const std::string &then = {}) const {
        fs::remove_all(noted_);
        std::ofstream(asleep_).close();
        node_.put_plugin("host-local", "#!/bin/sh\nif [ $CNI_COMMAND = " + verb + " ] && [ -e " + asleep_ +
                                           " ] && mkdir " + noted_ + " 2>/dev/null; then\n" +
                                           "    echo $CNI_CONTAINERID >" + noted_ + "/new; mv " + noted_ + "/new " +
                                           noted_ + "/id\n    while [ -e " + asleep_ + " ]; do sleep 0.01; done\nfi\n" +
                                           then + "exec " + variable("CNI_PLUGINS") + "/host-local\n");
    }
    // GC of an IPAM plugin that has one: it releases each lease whose container the list does not name.
    [[nodiscard]] std::string collecting() const {
        return R"(if [ $CNI_COMMAND = VERSION ]; then
    echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'
    exit
elif [ $CNI_COMMAND = GC ]; then
    listed=$(cat)
    for lease in )" +
               node_.leases() +
               R"(/pods/[0-9]*; do
        case $listed in *\"$(sed 's/\r//;q' $lease)\"*) ;; *) rm -f $lease ;; esac
    done
    exit
fi
sed 's/"1.1.0"/"1.0.0"/g' | )"; // to a host-local that knows no other
    }
    [[nodiscard]] std::string wait_for_sleeper() const {
        std::string id;
        EXPECT_TRUE(wait_until([&] { return fs::exists(noted_ + "/id"); }));
        std::ifstream(noted_ + "/id") >> id;
        return id;
    }
    [[nodiscard]] std::future<Output> start(const std::string &by) const {
        return std::async(std::launch::async, [this, by] {
            if (by != "GC")
                return ctl(by);
            const Reply reply = VerbsTest::gc();
            return Output{.rc = reply.rc, .out = reply.out, .err = reply.err};
        });
    }
    [[nodiscard]] std::string came_back(const Container &container, const std::string &ifname) const {
        return "an ADD of container " + container.id() + ", " + ifname + " has come since it was found dead";
    }

    const std::string asleep_ = node_.dir() + "/asleep", noted_ = node_.dir() + "/noted";
    const std::string before_ = everything();
};

TEST_F(GcBesideTest, AContainerThatIsStartedAgainLives) {
    const std::string release = "lease release --all";
    for (const std::string &by : {std::string("GC"), release}) {
        SCOPED_TRACE(by);
        const Json keys = by == release ? Json{{"keepAddress", "all"}} : Json::object();
        const Pod one = make(keys, named("shop", "web-0")), two = make(keys, named("shop", "db-0"));
        for (const Pod *pod : {&one, &two}) {
            if (by == release)
                EXPECT_THAT(del(*pod->container, keys), succeeds());
            lose_namespace(*pod);
        }
        sleep_in("DEL");
        auto call = start(by);
        const bool is_one_first = wait_for_sleeper() == one.container->id();
        const auto again = node_.container((is_one_first ? two : one).container->id());
        const Reply added = add(*again, keys, named("shop", is_one_first ? "db-0" : "web-0"));
        fs::remove(asleep_);
        const Output output = call.get();
        ASSERT_THAT(added, succeeds());
        EXPECT_EQ(output.rc, by == release ? 1 : 0) << output.out << output.err;
        if (by != "GC")
            EXPECT_THAT(output.out + output.err, HasSubstr(came_back(*again, "eth0")));
        EXPECT_THAT(check(look_at(again, added.json), keys), succeeds());
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_THAT(del(*again, keys), succeeds());
        if (by == release)
            EXPECT_THAT(ctl(release), prints(0, {"released"}));
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(GcBesideTest, AnAddThatComesAndEndsMeanwhileKeepsItsLease) {
    const Pod dead = make();
    lose_namespace(dead);
    sleep_in("DEL", collecting());
    auto call = start("GC");
    EXPECT_EQ(wait_for_sleeper(), dead.container->id());
    const Pod young = make();
    fs::remove(asleep_);
    const Output output = call.get();
    EXPECT_EQ(output.rc, 0) << output.out << output.err;
    EXPECT_EQ(node_.leased().size(), 2U) << "that of the dead one is released, and no other";
    EXPECT_THAT(check(young), succeeds());
    EXPECT_THAT(del(*young.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(GcBesideTest, AnAddRequestsNoLeaseWhileTheIpamPluginCollects) {
    EXPECT_THAT(del(*make().container), succeeds()); // the GC has nothing else to do
    sleep_in("GC", collecting());
    auto call = start("GC");
    (void)wait_for_sleeper();
    const auto container = node_.container();
    auto adding = std::async(std::launch::async, [&] { return add(*container); });
    EXPECT_EQ(adding.wait_for(quiet()), std::future_status::timeout);
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_TRUE(fs::exists(asleep_));
    fs::remove(asleep_);
    const Output output = call.get();
    EXPECT_EQ(output.rc, 0) << output.out << output.err;
    const Reply added = adding.get();
    ASSERT_THAT(added, succeeds());
    EXPECT_EQ(node_.leased().size(), 2U);
    EXPECT_THAT(check(look_at(container, added.json)), succeeds());
    EXPECT_THAT(del(*container), succeeds());
    EXPECT_EQ(everything(), before_);
}

// They collect one interface of a container after the other.
TEST_F(GcBesideTest, AContainerThatIsStartedAgainKeepsItsInterface) {
    const Variables net1 = {{"CNI_IFNAME", "net1"}};
    for (const std::string &by : {"gc --bin-dir " + node_.plugins(), // the other one takes the plugin along
                                  "uninstall --bin-dir " + bin() + " --conf-dir " + conf()}) {
        SCOPED_TRACE(by);
        const Pod dead = make();
        ASSERT_THAT(add(*dead.container, Json::object(), net1), succeeds());
        lose_namespace(dead);
        sleep_in("DEL");
        auto call = start(by);
        EXPECT_EQ(wait_for_sleeper(), dead.container->id());
        const auto again = node_.container(dead.container->id());
        const Reply added = add(*again, Json::object(), net1);
        fs::remove(asleep_);
        EXPECT_THAT(call.get(), prints(by.starts_with("gc") ? 0 : 1, {came_back(*again, "net1")}));
        ASSERT_THAT(added, succeeds());
        EXPECT_FALSE(find(ip_json(again->ns(), "link"), "ifname", "net1").is_null());
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_THAT(del(*again, Json::object(), net1), succeeds());
        EXPECT_THAT(node_.leased(), IsEmpty());
    }
}

// Where runtimes keep namespaces, a container has nothing.
class HiddenNamespaceTest : public GcBesideTest {
  protected:
    HiddenNamespaceTest() {
        fs::create_directories(fs::path(place_).parent_path());
        std::ofstream(place_).close();
        if (mount(container_->path().c_str(), place_.c_str(), nullptr, MS_BIND, nullptr) != 0)
            throw std::runtime_error("mounting " + place_);
    }
    ~HiddenNamespaceTest() override { umount2(place_.c_str(), MNT_DETACH); }

    [[nodiscard]] Output gc_in_a_container() const {
        return run(node_.ns(), {"unshare", "-m", "sh", "-c",
                                "umount " + container_->path() + " && umount " + place_ + " && mount -t tmpfs tmpfs " +
                                    node_.dir() + "/run && exec " + variable("PODLANECTL_BIN") + " gc --bin-dir " +
                                    node_.plugins() + " --bpffs " + node_.bpffs()});
    }

    const std::shared_ptr<Container> container_ = node_.container();
    const std::string place_ = node_.dir() + "/run/netns/one";
    const Variables netns_ = {{"CNI_NETNS", place_}};
};

TEST_F(HiddenNamespaceTest, AnAddUnderWaySucceeds) {
    sleep_in("ADD");
    auto adding = std::async(std::launch::async, [this] { return add(*container_, Json::object(), netns_); });
    EXPECT_EQ(wait_for_sleeper(), container_->id());
    EXPECT_THAT(gc_in_a_container(), prints(0, {"nothing to collect"}));
    EXPECT_TRUE(fs::exists(asleep_));
    fs::remove(asleep_);
    const Reply added = adding.get();
    ASSERT_THAT(added, succeeds());
    EXPECT_THAT(check(look_at(container_, added.json), Json::object(), netns_), succeeds());
    EXPECT_THAT(del(*container_, Json::object(), netns_), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(HiddenNamespaceTest, APodWithoutHostVethIsKept) {
    const Reply added = add(*container_, Json::object(), netns_);
    ASSERT_THAT(added, succeeds());
    on_node("ip link del " + look_at(container_, added.json).host_ifname);
    for (const bool is_lost : {false, true}) {
        if (is_lost)
            fs::remove_all(node_.bpffs());
        EXPECT_THAT(gc_in_a_container(), prints(0, {"kept: there is no directory of its namespace " + place_}))
            << (is_lost ? "known from the record" : "known from the maps");
        EXPECT_EQ(node_.leased().size(), 2U);
        EXPECT_EQ(node_.records().size(), 1U);
    }
    EXPECT_THAT(del(*container_, Json::object(), netns_), succeeds());
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(node_.records(), IsEmpty());
}

} // namespace
} // namespace podlane::test
