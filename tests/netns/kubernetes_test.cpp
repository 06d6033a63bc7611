// SPDX-License-Identifier: MIT
// What the API server says of a pod, by the real podlane-k8s and an HTTPS server that answers well and badly.
#include "tests/harness/cluster.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

constexpr const char *kToken = "a-token-of-the-test";

class KubernetesTest : public CtlTest {
  protected:
    void SetUp() override {
        const std::string program = variable("PODLANE_K8S_BIN");
        if (!std::filesystem::exists(program))
            GTEST_SKIP() << "podlane-k8s is not built";
        std::filesystem::create_symlink(program, node_.plugins() + "/podlane-k8s");
        make_authority("ca");
        make_authority("other-ca");
        make_certificate("server", "-addext subjectAltName=IP:127.0.0.1");
        make_certificate("podlane", "");
        write("token", std::string(kToken) + "\n");
        serve(path("server.pem"), path("server.key"));
    }
    [[nodiscard]] std::string path(const std::string &name) const { return node_.dir() + "/" + name; }
    void write(const std::string &name, const std::string &text) const { std::ofstream(path(name)) << text; }

    void serve(const std::string &certificate, const std::string &key) {
        server_.reset();
        std::filesystem::remove(path("port"));
        server_ = std::make_unique<Daemon>(
            node_.ns(),
            std::vector<std::string>{"/usr/bin/python3", variable("PODLANE_SOURCE_DIR") + "/tests/netns/api_server.py",
                                     path("port"), path("requests"), certificate, key, path("ca.pem")},
            path("server.log"));
        if (!wait_until([&] { return std::filesystem::exists(path("port")); }))
            throw std::runtime_error("the server does not start: " + node_.run("cat " + path("server.log")));
        url_ = "https://127.0.0.1:" + read_file(path("port"));
    }
    void make_authority(const std::string &name) const {
        node_.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=" + name +
                  " -keyout " + path(name + ".key") + " -out " + path(name + ".pem"));
    }
    void make_certificate(const std::string &name, const std::string &more) const {
        node_.run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " " + more +
                  " -keyout " + path(name + ".key") + " -out " + path(name + ".csr"));
        node_.run("openssl x509 -req -days 1 -copy_extensions copy -in " + path(name + ".csr") + " -CA " +
                  path("ca.pem") + " -CAkey " + path("ca.key") + " -CAcreateserial -out " + path(name + ".pem"));
    }
    [[nodiscard]] Json account() const {
        return {{"server", url_}, {"tokenFile", path("token")}, {"caFile", path("ca.pem")}};
    }
    [[nodiscard]] Json keys(const Json &more = Json::object(), const Json &of_server = Json::object()) const {
        Json server = account();
        server.update(of_server);
        Json all = {{"identity", {"kubernetes"}},
                    {"kubernetes", server},
                    {"groups", {"label:tenant", "annotation:app"}},
                    {"podMay", {"mtu"}},
                    {"log", {{"file", path("log")}, {"level", "debug"}}}};
        all.update(more);
        return all;
    }
    [[nodiscard]] std::size_t requests() const {
        const std::string all = std::filesystem::exists(path("requests")) ? read_file(path("requests")) : "";
        return static_cast<std::size_t>(std::ranges::count(all, '\n'));
    }
    // Of a kubeconfig; the user as YAML.
    [[nodiscard]] std::string kubeconfig(const std::string &user, const std::string &cluster = "") const {
        return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
               "contexts:\n- name: here\n  context: {cluster: c, user: u}\n"
               "clusters:\n- name: c\n  cluster:\n    server: " +
               url_ + "/\n    certificate-authority: ca.pem\n" + cluster + "users:\n- name: u\n  user:\n" + user;
    }

    std::unique_ptr<Daemon> server_;
    std::string url_;
};

TEST_F(KubernetesTest, PodAndNamespaceAreRequestedOnceAndReadAsOtherSources) {
    const Pod pod = make(keys(), named("shop", "web-0"));
    const Json shown = ctl_json("endpoint show shop/web-0").at(0);
    EXPECT_EQ(shown["labels"], Json({{"app", "not the pod's"}, {"tenant", "a"}})) << "of the namespace";
    EXPECT_EQ(shown["annotations"]["app"], "web") << "a label of the pod is its author's word";
    EXPECT_EQ(shown["annotations"]["team"], "blue") << "the pod's goes before the namespace's";
    EXPECT_FALSE(shown["annotations"].contains("escape"));
    EXPECT_EQ(shown["groups"], Json({"label:tenant=a", "annotation:app=web"}));
    EXPECT_EQ(pod.mtu, 1280U) << "podMay grants it";
    const std::string log = read_file(path("log"));
    EXPECT_THAT(log, HasSubstr("annotation \"podlane/pools\" sets what the pod may not"));
    EXPECT_THAT(log, Not(HasSubstr(kToken)));
    EXPECT_EQ(requests(), 2U);
    const std::string asked = read_file(path("requests"));
    EXPECT_THAT(asked, has_all({"GET\t/api/v1/namespaces/shop/pods/web-0\t", "GET\t/api/v1/namespaces/shop\t",
                                "PartialObjectMetadata", std::string("\tBearer ") + kToken + "\t"}));

    server_.reset(); // CHECK, repair and DEL go by what ADD got
    EXPECT_THAT(check(pod, keys(), named("shop", "web-0")), succeeds());
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(ctl_json("endpoint show shop/web-0").at(0)["groups"], shown["groups"]);
    EXPECT_THAT(del(*pod.container, keys(), named("shop", "web-0")), succeeds());
    EXPECT_EQ(requests(), 2U);
}

TEST_F(KubernetesTest, WhatTheApiServerCannotSayRefusesTheAddOrIsLeftOut) {
    const auto container = node_.container();
    ASSERT_THAT(add(*container), succeeds()); // the node is as it is with pods
    ASSERT_THAT(del(*container), succeeds());
    const std::string before = node_.state();
    const std::map<std::string, Parts> answers = {{"unauthorized", {"401", "Unauthorized"}},
                                                  {"forbidden", {"403", "Forbidden"}},
                                                  {"missing", {"404", "Not Found"}},
                                                  {"broken", {"500"}},
                                                  {"moved", {"302", "not followed"}},
                                                  {"garbage", {"answer"}},
                                                  {"nothing", {"metadata"}},
                                                  {"list", {"object"}},
                                                  {"cut", {"GET"}},
                                                  {"huge", {"longer than 1 MiB"}},
                                                  {"drip", {"podlane-k8s"}},
                                                  {"slow", {"podlane-k8s"}}};
    for (const auto &[name, parts] : answers) {
        SCOPED_TRACE(name);
        const auto began = std::chrono::steady_clock::now();
        const Reply reply = add(*container, keys(), named("shop", name));
        const auto took = std::chrono::steady_clock::now() - began;
        EXPECT_THAT(reply, fails_with(11, parts));
        EXPECT_THAT(reply.message(), HasSubstr("asking the API server: "));
        EXPECT_THAT(reply.out, Not(HasSubstr("secret-of-server")));
        EXPECT_LT(took, std::chrono::seconds(slow() ? 20 : 5)) << "2 s, and what the machine is late";
        EXPECT_EQ(node_.state(), before);
    }
    (void)make(keys(Json::object(), {{"onFailure", "continue"}}), named("shop", "forbidden"));
    EXPECT_EQ(ctl_json("endpoint show shop/forbidden").at(0)["labels"], Json::object());
    EXPECT_THAT(read_file(path("log")), HasSubstr("403 (Forbidden) (code 11); the pod starts without what it says"));
    EXPECT_THAT(read_file(path("log")), Not(HasSubstr(kToken)));
}

TEST_F(KubernetesTest, NoOtherServerSeesTheToken) {
    const auto container = node_.container();
    const auto fails = [&](const Json &of_server, const Parts &parts) {
        EXPECT_THAT(add(*container, keys(Json::object(), of_server), named("shop", "web-0")), fails_with(11, parts));
    };
    fails({{"caFile", path("other-ca.pem")}}, {"certificate"});
    fails({{"server", "https://localhost:" + read_file(path("port"))}}, {"localhost"}); // not in the certificate
    fails({{"caFile", path("token")}}, {"GET"});
    fails({{"tokenFile", path("no-such-token")}}, {"no-such-token"});
    write("two-lines", "a\nX-Injected: b");
    fails({{"tokenFile", path("two-lines")}}, {"two-lines"});
    EXPECT_EQ(requests(), 0U) << "nobody has seen the token";
    node_.remove_plugin("podlane-k8s");
    fails(Json::object(), {"podlane-k8s", "CNI_PATH"});
    EXPECT_THAT(add(*container, keys(), named("shop", "../../secrets/x")), fails_with(4, {"no name"}));
    EXPECT_THAT(add(*container, keys({{"kubernetes", nullptr}}), named("shop", "web-0")),
                fails_with(7, {"kubernetes"}));
    EXPECT_THAT(add(*container, keys()), succeeds()) << "no pod of Kubernetes: nobody is asked";
}

TEST_F(KubernetesTest, KubeconfigsAreRead) {
    const auto with = [&](const std::string &text) {
        write("kubeconfig", text);
        return keys({{"kubernetes", {{"kubeconfig", path("kubeconfig")}}}});
    };
    (void)make(with(kubeconfig(std::string("    token: ") + kToken + "\n")), named("shop", "web-0"));
    EXPECT_THAT(read_file(path("requests")), HasSubstr(std::string("\tBearer ") + kToken + "\t"));
    (void)make(with(kubeconfig("    tokenFile: token\n")), named("shop", "web-1"));
    const std::string key = node_.run("base64 -w0 " + path("podlane.key"));
    (void)make(with(kubeconfig("    client-certificate: podlane.pem\n    client-key-data: " + key + "\n")),
               named("shop", "web-2"));
    EXPECT_THAT(read_file(path("requests")), HasSubstr("pods/web-2"));
    EXPECT_THAT(read_file(path("requests")), HasSubstr("\t-\tpodlane\n")) << "by the certificate alone";

    const auto container = node_.container();
    const auto refused = [&](const std::string &text, const std::string &part) {
        EXPECT_THAT(add(*container, with(text), named("shop", "web-0")), fails_with(11, {part}));
    };
    const std::size_t so_far = requests();
    refused(kubeconfig("    exec: {command: /bin/false}\n"), "exec");
    refused(kubeconfig("    token: t\n", "    insecure-skip-tls-verify: true\n"), "insecure-skip-tls-verify");
    refused(kubeconfig("    token: t\n", "    proxy-url: http://127.0.0.1:1\n"), "proxy-url");
    refused(kubeconfig("    password: p\n"), "token");
    refused("current-context: [", "no YAML");
    refused("[]", "no kubeconfig");
    refused("current-context: nowhere", "nowhere");
    EXPECT_EQ(requests(), so_far);
}

// The API server has a pod of this name that is not the one that starts.
TEST_F(KubernetesTest, AnotherPodOfTheNameIsNotTaken) {
    const auto uid = [](const std::string &text) {
        Variables variables = named("shop", "web-0");
        variables["CNI_ARGS"] += ";K8S_POD_UID=" + text;
        return variables;
    };
    EXPECT_THAT(add(*node_.container(), keys(), uid("uid-of-another")), fails_with(11, {"another UID"}));
    (void)make(keys(), uid("uid-of-web-0"));
    (void)make(keys(), uid("hash-of-web-0")); // a static pod
}

class PodRangesTest : public KubernetesTest {
  protected:
    void SetUp() override {
        KubernetesTest::SetUp();
        // Nobody asks before: the node is as it is with pods.
        const auto container = node_.container();
        ASSERT_THAT(add(*container), succeeds());
        ASSERT_THAT(del(*container), succeeds());
    }
    // As Calico's configurations have it, for both families.
    [[nodiscard]] Json of_node(const std::string &node = "worker-1", const Json &more = Json::object()) const {
        Json all = {{"nodename", node},
                    {"kubernetes", account()},
                    {"stateDir", state()},
                    {"ipam", {{"ranges", {{{{"subnet", "usePodCidr"}}}, {{{"subnet", "usePodCidrIPv6"}}}}}}},
                    {"log", {{"file", path("log")}}}};
        all.merge_patch(more);
        return all;
    }
    [[nodiscard]] std::string state() const { return path("kept"); }
    [[nodiscard]] std::vector<std::string> kept() const {
        std::vector<std::string> files;
        if (std::filesystem::exists(state()))
            for (const auto &entry : std::filesystem::directory_iterator(state()))
                if (entry.path().filename().string().starts_with("pod-ranges-"))
                    files.push_back(entry.path());
        return files;
    }
    // As if they had been asked for that long ago.
    void age(std::uint64_t seconds) const {
        Json all = Json::parse(read_file(kept().at(0)));
        all["askedNs"] = all["askedNs"].get<std::uint64_t>() - seconds * 1'000'000'000;
        std::ofstream(kept().at(0)) << all;
    }
    [[nodiscard]] std::string log_text() const { return read_file(path("log")); }
    Pod make_of_node(const Json &more = Json::object()) { return make(of_node("worker-1", more)); }
};

TEST_F(PodRangesTest, HostLocalGetsTheRangesOfTheNode) {
    const Pod first = make_of_node();
    EXPECT_THAT(first.text4(), testing::StartsWith("198.18.40."));
    EXPECT_THAT(first.text6(), testing::StartsWith("2001:db8:40:"));
    EXPECT_EQ(requests(), 1U);
    EXPECT_THAT(read_file(path("requests")), HasSubstr("GET\t/api/v1/nodes/worker-1\tapplication/json\tBearer "));
    ASSERT_EQ(kept().size(), 1U);
    EXPECT_EQ(std::filesystem::status(kept()[0]).permissions(), std::filesystem::perms(0600));
    EXPECT_THAT(read_file(kept()[0]), Not(HasSubstr(kToken)));

    server_.reset();
    const Pod second = make_of_node();
    EXPECT_THAT(second.text4(), testing::StartsWith("198.18.40."));
    EXPECT_THAT(node_.cni("STATUS", node_.config(of_node("worker-1", {{"cniVersion", "1.1.0"}})), *second.container),
                succeeds());
    EXPECT_EQ(log_text(), "") << "nobody is asked";
    age(301);
    const Pod third = make_of_node();
    EXPECT_THAT(log_text(), HasSubstr("for node worker-1: podlane-k8s: GET /api/v1/nodes/worker-1: "));
    EXPECT_THAT(log_text(), HasSubstr("; its ranges are taken to be what they were: 198.18.40.0/24, 2001:db8:40::/64"));
    const std::string once = log_text();
    const Pod fourth = make_of_node();
    EXPECT_EQ(log_text(), once) << "the API server is left alone for a while";

    EXPECT_THAT(check(third, of_node()), succeeds());
    std::filesystem::remove(kept()[0]);
    EXPECT_THAT(check(third, of_node()), succeeds());
    EXPECT_THAT(node_.podlanectl("repair"), prints(0));
    for (const Pod *one : {&first, &second, &third})
        EXPECT_THAT(del(*one->container, of_node()), succeeds());
    EXPECT_THAT(del(*node_.container(), of_node()), succeeds()) << "of a container that nobody knows";
    Json gc = of_node("worker-1", {{"cniVersion", "1.1.0"}});
    gc["cni.dev/valid-attachments"] = Json::array();
    EXPECT_THAT(node_.cni("GC", node_.config(gc), *fourth.container), succeeds());
    EXPECT_THAT(node_.leased(), testing::IsEmpty());
    EXPECT_TRUE(kept().empty());
}

TEST_F(PodRangesTest, AskedAgainTheyMayBeOthers) {
    (void)make_of_node();
    write("port.ranges", R"(["198.18.41.0/24", "2001:db8:41::/64"])");
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.40.")) << "not before five minutes are over";
    age(301);
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.41."));
    EXPECT_THAT(log_text(), HasSubstr("the ranges of node worker-1 are no longer 198.18.40.0/24"));
    EXPECT_EQ(requests(), 2U);
    age(1ULL << 31U); // the clock is set
    EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.41."));
    EXPECT_EQ(requests(), 3U);
    (void)make(of_node("worker-2"));
    EXPECT_EQ(requests(), 4U) << "another node";
    EXPECT_THAT(node_.podlanectl("uninstall --bin-dir " + path("no-bin") + " --conf-dir " + path("no-conf") +
                                 " --state-dir " + state()),
                prints(0));
    EXPECT_TRUE(kept().empty());
}

TEST_F(PodRangesTest, FilesThatAreNotWholeCountForNothing) {
    (void)make_of_node();
    const std::string whole = read_file(kept()[0]);
    Json hostile = Json::parse(whole);
    hostile["podCIDRs"] = {"0.0.0.0/0"};
    Json foreign = Json::parse(whole);
    foreign["question"] = "of another node";
    std::size_t so_far = requests();
    for (const std::string &text : {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
                                    std::string(whole.size(), '\0'), hostile.dump(), foreign.dump()}) {
        std::ofstream(kept()[0]) << text;
        EXPECT_THAT(make_of_node().text4(), testing::StartsWith("198.18.40.")) << text;
        EXPECT_EQ(requests(), ++so_far) << text;
    }
    const std::string file = kept()[0];
    std::filesystem::remove(file);
    std::filesystem::create_symlink(path("token"), file);
    server_.reset();
    EXPECT_THAT(add(*node_.container(), of_node()), fails_with(5, {file})) << "a link is not followed";
    EXPECT_EQ(read_file(path("token")), std::string(kToken) + "\n");
}

TEST_F(PodRangesTest, NoRangesNoPod) {
    const auto container = node_.container();
    const std::string before = node_.state();
    const std::map<std::string, Parts> answers = {{"unauthorized", {"401", "Unauthorized"}},
                                                  {"forbidden", {"403", "Forbidden"}},
                                                  {"missing", {"404"}},
                                                  {"garbage", {"answer"}},
                                                  {"huge", {"longer than 1 MiB"}},
                                                  {"slow", {"podlane-k8s"}},
                                                  {"none", {"no spec.podCIDRs"}},
                                                  {"everything", {"spec.podCIDRs[0] is \"0.0.0.0/0\""}},
                                                  {"everything6", {"spec.podCIDRs[0] is \"::/0\""}},
                                                  {"host-bits", {"spec.podCIDRs[0]"}},
                                                  {"loopback", {"spec.podCIDRs[0]"}},
                                                  {"one-address", {"spec.podCIDR is"}},
                                                  {"twice", {"second range of its family"}},
                                                  {"many", {"second range of its family"}},
                                                  {"numbers", {"spec.podCIDRs[0]"}}};
    for (const auto &[name, parts] : answers) {
        SCOPED_TRACE(name);
        const Reply reply = add(*container, of_node(name));
        EXPECT_THAT(reply, fails_with(11, parts));
        EXPECT_THAT(reply.message(), HasSubstr("\"ipam\" has \"usePodCidr\": asking the API server for node " + name));
        EXPECT_FALSE(reply.details().empty()) << "the way out";
        EXPECT_EQ(node_.state(), before);
        EXPECT_TRUE(kept().empty());
    }
    const Json status = of_node("none", {{"cniVersion", "1.1.0"}});
    EXPECT_THAT(node_.cni("STATUS", node_.config(status), *container), fails_with(11, {"no spec.podCIDRs"}));
    for (const char *name : {"old", "ipv6-only"}) {
        const bool lacks_ipv6 = std::string(name) == "old";
        EXPECT_THAT(add(*container, of_node(name)), fails_with(7, {lacks_ipv6 ? "no IPv6 range" : "no IPv4 range",
                                                                   lacks_ipv6 ? "usePodCidrIPv6" : "usePodCidr"}));
    }
    EXPECT_THAT(make(of_node("old", {{"ipam", {{"ranges", nullptr}, {"subnet", "usePodCidr"}}}})).text4(),
                testing::StartsWith("198.18.44."))
        << "a node of an older Kubernetes, and host-local's older key";
    EXPECT_THAT(add(*container, of_node("worker-1", {{"kubernetes", nullptr}})),
                fails_with(7, {"usePodCidr", "how to reach the API server"}));
    EXPECT_THAT(add(*container, of_node("Worker One")), fails_with(7, {"\"worker one\"", "no name of a node"}));
    EXPECT_THAT(del(*container, of_node("worker-1", {{"kubernetes", nullptr}})), succeeds());
    node_.remove_plugin("podlane-k8s");
    EXPECT_THAT(add(*container, of_node()), fails_with(11, {"podlane-k8s", "CNI_PATH"}));
}

// With the call that started it.
TEST_F(KubernetesTest, DoesNotOutliveItsParent) {
    const auto container = node_.container();
    const auto is_running = [&] { // on this node
        constexpr const char *kScript = "for one in /proc/[0-9]*; do [ $one/ns/net -ef /proc/self/ns/net ] && "
                                        "readlink $one/exe; done | grep -q ";
        return run(node_.ns(), {"/bin/sh", "-c", kScript + variable("PODLANE_K8S_BIN")}).rc == 0;
    };
    write("config", node_.config(keys()).dump());
    Variables variables = attachment(*container);
    variables.merge(named("shop", "slow"));
    std::vector<std::string> argv = {"/usr/bin/env", "CNI_COMMAND=ADD", "CNI_PATH=" + node_.plugins()};
    for (const auto &[name, value] : variables)
        argv.push_back(name + "=" + value);
    argv.insert(argv.end(), {"/bin/sh", "-c", "exec " + node_.plugins() + "/podlane <" + path("config")});
    {
        const Daemon call(node_.ns(), argv, path("call.log"));
        EXPECT_TRUE(wait_until([&] { return requests() == 1; })) << "it waits for the answer";
        EXPECT_TRUE(is_running());
    }
    EXPECT_TRUE(wait_until([&] { return !is_running(); }, std::chrono::seconds(1)));
}

} // namespace
} // namespace podlane::test
