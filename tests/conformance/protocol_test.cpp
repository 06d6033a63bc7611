// SPDX-License-Identifier: MIT
// The CNI specification, 0.1.0 to 1.1.0: results and errors in the caller's version, and nothing else on stdout.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

const std::vector<std::string> kVersions = {"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"};

class ProtocolTest : public VerbsTest {
  protected:
    // The form of the result in each version, with what is in the kernel filled in.
    [[nodiscard]] Json expected(const std::string &version, const Pod &made) const {
        const Json routes4 = {{{"dst", "0.0.0.0/0"}, {"gw", kGateway4}}};
        const Json routes6 = {{{"dst", "::/0"}, {"gw", kGateway6}}};
        if (version < "0.3.0")
            return {{"cniVersion", version},
                    {"ip4", {{"ip", "198.18.9.2/32"}, {"gateway", "198.18.9.1"}, {"routes", routes4}}},
                    {"ip6", {{"ip", "2001:db8:9::2/128"}, {"gateway", "2001:db8:9::1"}, {"routes", routes6}}}};
        Json pod = pod_link(*made.container);
        Json host = find(ip_json(node_.ns(), "link"), "ifindex", pod["link_index"]);
        Json interfaces = {
            {{"name", host["ifname"]}, {"mac", host["address"]}},
            {{"name", "eth0"}, {"mac", pod["address"]}, {"sandbox", made.container->path()}},
        };
        Json ips = {{{"address", "198.18.9.2/32"}, {"gateway", "198.18.9.1"}, {"interface", 1}},
                    {{"address", "2001:db8:9::2/128"}, {"gateway", "2001:db8:9::1"}, {"interface", 1}}};
        if (version < "1.0.0") {
            ips[0]["version"] = "4";
            ips[1]["version"] = "6";
        }
        if (version >= "1.1.0")
            for (Json &one : interfaces)
                one["mtu"] = 1420;
        return {
            {"cniVersion", version}, {"interfaces", interfaces}, {"ips", ips}, {"routes", {routes4[0], routes6[0]}}};
    }
    // An error as the spec has it: exit code 1, one JSON object of these members in the caller's version.
    static void expect_error(const Reply &reply, int code, const std::vector<std::string> &texts,
                             const std::string &version = "1.0.0") {
        EXPECT_EQ(reply.rc, 1) << reply;
        ASSERT_TRUE(reply.json.is_object()) << reply;
        EXPECT_EQ(reply.code(), code) << reply;
        EXPECT_EQ(reply.json.value("cniVersion", ""), version) << reply;
        EXPECT_NE(reply.message(), "");
        for (const std::string &text : texts)
            EXPECT_THAT(reply.message() + "\n" + reply.details(), HasSubstr(text));
        for (const auto &[key, value] : reply.json.items())
            EXPECT_TRUE((std::set<std::string>{"cniVersion", "code", "msg", "details"}).contains(key)) << key;
    }
    [[nodiscard]] Reply with(const Json &keys) const { return node_.cni("ADD", node_.config(keys), *container_); }

    std::shared_ptr<Container> container_ = node_.container();
};

TEST_F(ProtocolTest, EachVersionWorksFromAddToDel) {
    for (const std::string &version : kVersions) {
        SCOPED_TRACE(version);
        const Json keys = {{"cniVersion", version}};
        const Reply added = succeeded(add(*container_, keys));
        EXPECT_EQ(added.json, expected(version, {.container = container_}));
        Json with_result = node_.config(keys);
        with_result["prevResult"] = added.json;
        const Reply checked = node_.cni("CHECK", with_result, *container_);
        if (version < "0.4.0")
            expect_error(checked, 1, {version, "CHECK"}, version);
        else
            EXPECT_EQ(checked.rc, 0) << checked;
        const Reply deleted = node_.cni("DEL", with_result, *container_);
        EXPECT_EQ(deleted.rc, 0) << deleted;
        EXPECT_EQ(deleted.out, "");
        EXPECT_TRUE(node_.leased().empty());
        std::filesystem::remove_all(node_.leases()); // so that the next one gets the same addresses
    }
}

TEST_F(ProtocolTest, GcAndStatusCameWithVersion110) {
    for (const std::string &version : kVersions)
        for (const std::string command : {"GC", "STATUS"}) {
            SCOPED_TRACE(version + " " + command);
            const Json config = node_.config({{"cniVersion", version}, {"cni.dev/valid-attachments", Json::array()}});
            const Reply reply = node_.cni("podlane", command, config);
            if (version < "1.1.0")
                expect_error(reply, 1, {version}, version);
            else
                EXPECT_EQ(reply.rc, 0) << reply;
        }
}

// With no cniVersion at all it is 0.1.0.
TEST_F(ProtocolTest, WithoutAVersionItIsTheOldest) {
    const Reply reply = succeeded(with({{"cniVersion", nullptr}}));
    EXPECT_EQ(reply.json["cniVersion"], "0.1.0");
    EXPECT_TRUE(reply.json.contains("ip4"));
}

TEST_F(ProtocolTest, StdoutHoldsTheResultAlone) {
    const Json chatty = {{"log", {{"level", "debug"}}}};
    const Reply added = succeeded(add(*container_, chatty));
    EXPECT_TRUE(Json::accept(added.out)) << added.out;
    EXPECT_NE(added.err, "") << "the log goes to standard error";
    const Reply quiet_del = del(*container_);
    EXPECT_EQ(quiet_del.out, "");
    EXPECT_EQ(quiet_del.err, "");
    EXPECT_EQ(add(*container_).err, "");
}

// Reported in the newest version, because theirs is none we could write.
TEST_F(ProtocolTest, RefusesUnknownVersions) {
    for (const std::string version : {"9.9.9", "1.2.0", "0.9.0", "one"})
        expect_error(with({{"cniVersion", version}}), 1, {version, "0.1.0"}, "1.1.0");
}

TEST_F(ProtocolTest, WrongConfigurationsAreNamed) {
    const std::string before = node_.state();
    expect_error(with({{"mtuu", 1400}}), 7, {"\"mtuu\"", "\"mtu\""});
    expect_error(with({{"name", nullptr}}), 7, {"name"});
    expect_error(with({{"name", "-bad"}}), 7, {"name"});
    expect_error(with({{"mtu", 20}}), 7, {"mtu"});
    expect_error(with({{"mtu", "much"}}), 7, {"mtu"});
    expect_error(with({{"fastPath", "sideways"}}), 7, {"fastPath", "\"local\""});
    expect_error(with({{"bpffs", "relative"}}), 7, {"bpffs"});
    expect_error(with({{"hostInterfacePrefix", "far-too-long"}}), 7, {"hostInterfacePrefix"});
    expect_error(with({{"allowedSources", {"nowhere"}}}), 7, {"allowedSources"});
    expect_error(with({{"log", {{"levle", "info"}}}}), 7, {"levle", "level"});
    expect_error(with({{"ipam", nullptr}}), 7, {"ipam", "prevResult"});
    expect_error(with({{"ipMasq", "yes"}}), 7, {"ipMasq"});
    EXPECT_EQ(node_.state(), before);
}

TEST_F(ProtocolTest, RefusesInputThatIsNoConfiguration) {
    const Variables all = attachment(*container_);
    for (const std::string text : {"", "{", "[]", "null", "\"text\"", "{\"cniVersion\":\"1.0.0\"} x", "\xff\xfe"}) {
        EXPECT_THAT(node_.cni_text("podlane", "ADD", text, all), fails_with(6)) << text;
    }
}

TEST_F(ProtocolTest, WrongEnvironmentsAreNamed) {
    const std::string before = node_.state();
    const auto call = [&](const std::string &command, const std::string &name, const std::string &value) {
        Variables all = attachment(*container_);
        all[name] = value;
        return node_.cni("podlane", command, node_.config(), all);
    };
    for (const std::string name : {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"})
        expect_error(call("ADD", name, ""), 4, {name});
    for (const std::string name : {"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"})
        expect_error(call("DEL", name, ""), 4, {name});
    for (const std::string &id : std::vector<std::string>{"-x", "a/b", "a b", std::string(200, 'a')})
        expect_error(call("ADD", "CNI_CONTAINERID", id), 4, {"CNI_CONTAINERID"});
    for (const std::string ifname : {"a/b", "a:b", "a b", ".", "..", "sixteen-letters-", "a%d"})
        expect_error(call("ADD", "CNI_IFNAME", ifname), 4, {"CNI_IFNAME"});
    for (const std::string args : {"novalue", "A=B", "IgnoreUnknown=maybe", "MAC=x", "IP=x", "A=B=C;IgnoreUnknown=1"})
        expect_error(call("ADD", "CNI_ARGS", args), 4, {"CNI_ARGS"});
    expect_error(call("ADD", "CNI_NETNS", "relative"), 4, {"CNI_NETNS"});
    expect_error(call("ADD", "CNI_NETNS", "/dev/null"), 4, {"CNI_NETNS", "/dev/null"});
    expect_error(call("PING", "CNI_COMMAND", "PING"), 4, {"CNI_COMMAND", "PING"});
    expect_error(call("ADD", "CNI_PATH", "relative"), 4, {"CNI_PATH"});
    EXPECT_EQ(node_.state(), before);
}

TEST_F(ProtocolTest, AcceptsWhatRuntimesAndLibrariesAdd) {
    EXPECT_THAT(with({{"capabilities", {{"portMappings", true}}},
                      {"runtimeConfig", {{"portMappings", Json::array()}, {"DNS", {{"Servers", {"198.18.0.53"}}}}}},
                      {"disableCheck", true},
                      {"args", {{"labels", Json::array()}}},
                      {"cni.dev/attachments", Json::array()},
                      {"example.net/key", 1},
                      {"deviceID", "x"}}),
                succeeds());
}

TEST_F(ProtocolTest, ReadsTheIdentityInAnyOrder) {
    for (const std::string args : {"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;IgnoreUnknown=1;Z=1;K8S_POD_UID=u;"
                                   "K8S_POD_INFRA_CONTAINER_ID=c",
                                   "Z=1;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u;IgnoreUnknown=true;"
                                   "K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"}) {
        const Pod made = make(Json::object(), {{"CNI_ARGS", args}});
        EXPECT_EQ(field_text(record(made).pod_name), "web-0");
        EXPECT_EQ(field_text(record(made).pod_namespace), "shop");
    }
}

// Runtimes show what is on standard error if there is no JSON on standard output.
TEST_F(ProtocolTest, FailsIfTheResultCannotBeWritten) {
    const std::string config = node_.config().dump();
    EXPECT_THAT(run(node_.ns(), {"sh", "-c", "exec " + node_.plugins() + "/podlane >/dev/full"}, config,
                    {{"CNI_COMMAND", "VERSION"}}),
                complains(1, {"writing the result to standard output: No space left on device"}));
}

} // namespace
} // namespace podlane::test
