// SPDX-License-Identifier: MIT
// Labels that others give a pod: each source, in order, within bounds, and never an error.
#include "plugin/cni/labels.hpp"
#include "plugin/cni/request.hpp"
#include "tests/harness/test.hpp"

namespace podlane::cni {
namespace {

Request request_of(const std::string &more, const std::string &args = "", const std::string &command = "ADD") {
    auto request = parse_request({{"CNI_COMMAND", command},
                                  {"CNI_CONTAINERID", "0a1b2c"},
                                  {"CNI_IFNAME", "eth0"},
                                  {"CNI_NETNS", "/run/netns/a"},
                                  {"CNI_ARGS", args},
                                  {"CNI_PATH", "/opt/cni/bin"}},
                                 R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane",
                                           "ipam": {"type": "host-local"}, )" +
                                     more + "}");
    EXPECT_TRUE(request) << more << ": " << (request ? "" : request.error().message);
    return request ? *std::move(request) : Request{};
}

PodIdentity identity_of(const std::string &more, const std::string &args = "", const std::string &command = "ADD") {
    return request_of(more, args, command).pod;
}

constexpr const char *kEverything = R"(
    "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"team": "blue", "example.org/size": "9"}},
    "args": {"cni": {"labels": [{"key": "app", "value": "web"}, {"key": "NOMAD_JOB_ID", "value": "other"}],
                     "colour": "red", "ips": ["198.18.1.1"], "number": 7},
             "org.apache.mesos": {"network_info": {"labels": {"labels": [{"key": "rack", "value": "r1"},
                                                                         {"key": "app", "value": "db"}]}}}})";

TEST(CniLabels, OnlyCniArgsUnlessTheConfigurationNamesMore) {
    const PodIdentity pod = identity_of(kEverything, "NOMAD_JOB_ID=web;NERDCTL_X=y");
    EXPECT_EQ(pod.labels, (Labels{{"NOMAD_JOB_ID", "web"}, {"NERDCTL_X", "y"}}));
    EXPECT_EQ(pod.annotations, Labels{});
}

TEST(CniLabels, EachSourceIsSwitchedOnByItsName) {
    const auto of = [](const std::string &source) {
        return identity_of("\"identity\": [\"" + source + "\"], " + kEverything);
    };
    EXPECT_EQ(of("annotations").annotations, (Labels{{"team", "blue"}, {"example.org/size", "9"}}));
    EXPECT_EQ(of("annotations").labels, Labels{});
    EXPECT_EQ(of("labels").labels, (Labels{{"app", "web"}, {"NOMAD_JOB_ID", "other"}}));
    EXPECT_EQ(of("mesos").labels, (Labels{{"rack", "r1"}, {"app", "db"}}));
    EXPECT_EQ(of("cni-args").annotations, (Labels{{"colour", "red"}})) << "multus hands on what the pod says";
    EXPECT_EQ(of("cni-args").labels, Labels{});
}

TEST(CniLabels, OfTwoSourcesTheFirstCounts) {
    const PodIdentity pod =
        identity_of("\"identity\": [\"mesos\", \"labels\", \"cni-args\", \"annotations\"], " + std::string(kEverything),
                    "NOMAD_JOB_ID=web");
    EXPECT_EQ(pod.labels, (Labels{{"NOMAD_JOB_ID", "web"}, {"app", "web"}, {"rack", "r1"}}));
    EXPECT_EQ(pod.annotations, (Labels{{"team", "blue"}, {"example.org/size", "9"}, {"colour", "red"}}));
}

TEST(CniLabels, WhatCannotBeShownIsLeftOut) {
    Labels all;
    EXPECT_TRUE(add_label(all, "a", ""));
    EXPECT_FALSE(add_label(all, "a", "second"));
    EXPECT_TRUE(add_label(all, std::string(kLongestLabelKey, 'k'), std::string(kLongestLabelValue, 'v')));
    for (const std::string key : {"", "a b", "a=b", "a\n", "\xc3\xa4", "a\"", "a{", "a,b", "\033"})
        EXPECT_FALSE(add_label(all, key, "v")) << key;
    EXPECT_FALSE(add_label(all, std::string(kLongestLabelKey + 1, 'k'), "v"));
    for (const std::string value : {"a\nb", "\033[2J", "\xff", "\xc2\x85"})
        EXPECT_FALSE(add_label(all, "b", value)) << value;
    EXPECT_FALSE(add_label(all, "b", std::string(kLongestLabelValue + 1, 'v')));
    EXPECT_EQ(all.size(), 2U);
}

TEST(CniLabels, ThereAreAtMost64) {
    std::string args;
    for (int i = 0; i < 100; ++i)
        args += "NOMAD_" + std::to_string(i) + "=v;";
    EXPECT_EQ(identity_of("\"mtu\": 1500", args + "IgnoreUnknown=1").labels.size(), kMostLabels);
}

// kubectl's own annotation is a whole object in JSON, and a pod's author writes whatever he likes.
TEST(CniLabels, OfAnotherFormAreNoError) {
    for (const std::string more :
         {R"("runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": 1, "b": null, "c": {}, "\n": "x"}})",
          R"("args": {"cni": {"labels": "app=web"}})", R"("args": {"cni": {"labels": [1, {}, {"key": 5}]}})",
          R"("args": {"org.apache.mesos": {"network_info": 5}})"}) {
        const PodIdentity pod =
            identity_of("\"identity\": [\"annotations\", \"labels\", \"mesos\", \"cni-args\"], " + more);
        EXPECT_EQ(pod.labels, Labels{}) << more;
        EXPECT_EQ(pod.annotations, Labels{}) << more;
    }
    EXPECT_EQ(identity_of(R"("identity": ["labels"], "args": {"cni": {"labels": {"app": "web", "n": 1}}})").labels,
              (Labels{{"app", "web"}}));
}

TEST(CniGroups, AreNamedByTheirSource) {
    const Request request = request_of(R"("groups": ["namespace", "network", "name:tenant-a", "label:app",
                                                     "annotation:team", "annotation:app", "label:none", "network"],
                                          "identity": ["annotations", "labels"], )" +
                                           std::string(kEverything),
                                       "K8S_POD_NAMESPACE=shop");
    EXPECT_EQ(request.config.groups, (std::vector<std::string>{"namespace:shop", "network:pods", "tenant-a",
                                                               "label:app=web", "annotation:team=blue"}));
    EXPECT_EQ(request_of(R"("groups": ["namespace"])").config.groups, std::vector<std::string>{}) << "nobody named one";
}

TEST(CniGroups, OfAnotherFormAreAnError) {
    for (const std::string more :
         {R"("groups": "namespace")",
          R"("groups": [""])",
          R"("groups": ["name:"])",
          R"("groups": ["name:a=b"])",
          R"("groups": ["label"])",
          R"("groups": ["other:a"])",
          R"("groups": ["name:a\n"])",
          R"("groups": ["name:1","name:2","name:3","name:4","name:5","name:6","name:7","name:8","name:9"])",
          R"("isolation": "group")",
          R"("isolation": "pods")",
          R"("isolation": true)",
          R"("host": true)",
          R"("outside": "none")",
          R"("allow": ["a", "b"])",
          R"("allow": [["a"]])",
          R"("allow": [["a", ""]])",
          R"("allow": [["a", "b\n"]])",
          R"("groupCIDRs": ["198.18.0.0/16"])",
          R"("groupCIDRs": {"a": "198.18.0.0/16"})",
          R"("groupCIDRs": {"a": ["198.18.0.0/16"], "b": ["198.18.1.1/16"]})",
          R"("groupCIDRs": {"": []})",
          R"("isolation": "network", "uplink": "eth0")",
          R"("isolation": "network", "gateway": "192.0.2.1")",
          R"("egress": "deny")",
          R"("egress": "cluster")",
          R"("egress": "cluster", "clusterCIDRs": [])",
          R"("egress": "cluster", "clusterCIDRs": ["198.18.0.0/16"], "table": 100)"})
        EXPECT_FALSE(parse_request({{"CNI_COMMAND", "ADD"},
                                    {"CNI_CONTAINERID", "a"},
                                    {"CNI_IFNAME", "eth0"},
                                    {"CNI_NETNS", "/run/netns/a"},
                                    {"CNI_PATH", "/opt/cni/bin"}},
                                   R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane",
                                       "ipam": {"type": "host-local"}, )" +
                                       more + "}"))
            << more;
}

TEST(CniIsolation, IsReadAsItIsWritten) {
    const Isolation none = request_of(R"("isolation": "none")").config.isolation;
    EXPECT_EQ(none, Isolation{});
    const Isolation read = request_of(R"("groups": ["namespace"], "isolation": "group", "host": "deny",
        "outside": "allow", "allow": [["tenant-a", "namespace:shop"]],
        "groupCIDRs": {"tenant-a": ["198.18.64.0/20", "2001:db8::/32"]})")
                               .config.isolation;
    EXPECT_EQ(read.by, IsolateBy::group);
    EXPECT_FALSE(read.host);
    EXPECT_TRUE(read.outside);
    EXPECT_EQ(read.allow, (std::vector<std::pair<std::string, std::string>>{{"tenant-a", "namespace:shop"}}));
    EXPECT_EQ(read.group_cidrs.size(), 2U);
    EXPECT_EQ(request_of(R"("isolation": "network")").config.isolation.by, IsolateBy::network);
    EXPECT_FALSE(request_of(R"("egress": "allow")").config.egress_in_cluster);
    EXPECT_TRUE(request_of(R"("egress": "cluster", "clusterCIDRs": ["::/0"])").config.egress_in_cluster);
}

TEST(CniLabels, DelReadsNone) {
    EXPECT_EQ(identity_of("\"identity\": [\"annotations\"], " + std::string(kEverything), "", "DEL").annotations,
              Labels{});
}

} // namespace
} // namespace podlane::cni
