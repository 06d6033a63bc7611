// SPDX-License-Identifier: MIT
// Labels of a pod from the API server, by the real podlane-k8s and an HTTPS server that answers well and badly.
#include "tests/netns/kubernetes.hpp"

namespace podlane::test {
namespace {

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
        EXPECT_THAT(reply.message(), HasSubstr("querying the API server: "));
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
