// SPDX-License-Identifier: MIT
// Queries to the API server, and the parts of its answer that count: names that are no step in a path, bounded texts.
#include "plugin/cni/kubernetes.hpp"
#include "tests/unit/cni_request.hpp"

namespace podlane::cni {
namespace {

TEST(CniKubernetes, NamesAreThoseOfTheDns) {
    for (const char *name : {"web-0", "a", "0", "a.b-c.d", "coredns-5d78c9869d-abcde"})
        EXPECT_TRUE(is_dns_name(name)) << name;
    for (const std::string name : {"", ".", "..", "a..b", "../secrets", "a/b", "a%2fb", "Web", "-a", "a-", "a_b", "a b",
                                   "a\n", "a?watch=1", "a.", ".a"})
        EXPECT_FALSE(is_dns_name(name)) << name;
    EXPECT_FALSE(is_dns_name(std::string(64, 'a'))) << "longer than a label";
    EXPECT_FALSE(is_dns_name(std::string(64, 'a').replace(32, 1, ".") + "." + std::string(200, 'a')));
}

TEST(CniKubernetes, ServersAreReachedByTlsAlone) {
    for (const char *url : {"https://192.0.2.1:6443", "https://[2001:db8::1]:6443", "https://api.example.org/k8s/c-1"})
        EXPECT_TRUE(is_server_url(url)) << url;
    for (const char *url : {"", "http://192.0.2.1", "https://", "https:///x", "https://user@host", "https://h?x=1",
                            "https://h#x", "https://h h", "https://h\n", "file:///etc/shadow", "HTTPS://h"})
        EXPECT_FALSE(is_server_url(url)) << url;
}

TEST(CniKubernetes, WrongKeysAreNamed) {
    for (const char *value :
         {"1", R"({"kubeconfig": "relative"})",
          R"({"kubeconfig": "/a", "server": "https://h", "tokenFile": "/t", "caFile": "/c"})",
          R"({"server": "https://h"})", R"({"kubeconfig": "/a", "onFailure": "maybe"})", R"({"kubeConfig": "/a"})",
          R"({"server": "http://h", "tokenFile": "/t", "caFile": "/c"})", "{}"})
        EXPECT_THAT(why(parse(config_with("\"kubernetes\": " + std::string(value)))), HasSubstr("kube")) << value;
    EXPECT_TRUE(parse(config_with(R"("identity": ["kubernetes"], "kubernetes": {"kubeconfig": "/a"})")));
}

TEST(CniKubernetes, AnswersAreBounded) {
    json::Value labels = {{"app", "web"}, {"number", 7}, {"list", {1}}, {"bad key", "x"}, {"line", "a\nb"}};
    labels["long"] = std::string(1025, 'a');
    const json::Value answer = {{"pod", {{"labels", labels}, {"annotations", "none"}, {"spec", {{"secret", "s"}}}}}};
    const auto config = with_kubernetes(R"({"name": "pods"})", json::print(answer));
    ASSERT_TRUE(config);
    EXPECT_THAT(*config, HasSubstr(R"("podLabels":{"app":"web"})"));
    EXPECT_THAT(*config, Not(HasSubstr("secret")));
    for (const char *wrong : {"", "[]", "{", "null", "\xff"})
        EXPECT_FALSE(with_kubernetes("{}", wrong)) << wrong;

    json::Value many = json::Value::object();
    for (int i = 0; i < 1000; ++i)
        many["key" + std::to_string(i)] = std::string(1000, 'a');
    const auto most = with_kubernetes("{}", json::print(json::Value{{"pod", {{"labels", many}}}}));
    ASSERT_TRUE(most);
    EXPECT_LT(most->size(), 70'000U);
}

TEST(CniKubernetes, WhatTheRuntimePassesGoesFirst) {
    const std::string config =
        config_with(R"("identity": ["kubernetes"], "kubernetes": {"kubeconfig": "/a"}, "podMay": ["mtu"],
                       "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"team": "red"}})");
    const auto completed = with_kubernetes(
        config, R"({"pod": {"annotations": {"team": "blue", "podlane/mtu": "1280"}, "labels": {"app": "web"}},
                    "namespace": {"annotations": {"podlane/mtu": "1300", "site": "x"}, "labels": {"app": "ns"}}})");
    ASSERT_TRUE(completed);
    const auto request = parse(*completed);
    ASSERT_TRUE(request) << why(request);
    EXPECT_EQ(request->pod.annotations,
              (Labels{{"team", "red"}, {"podlane/mtu", "1280"}, {"site", "x"}, {"app", "web"}}));
    EXPECT_EQ(request->pod.labels, (Labels{{"app", "ns"}}));
    EXPECT_EQ(request->config.pod_mtu, 1280U);
    const auto later = parse(with_kubernetes_of(config, *completed));
    ASSERT_TRUE(later);
    EXPECT_EQ(later->pod.annotations, request->pod.annotations);
    EXPECT_EQ(with_kubernetes_of(config, "{}"), config);
}

} // namespace
} // namespace podlane::cni
