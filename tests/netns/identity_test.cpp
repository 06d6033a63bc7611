// SPDX-License-Identifier: MIT
// Who a pod is: its labels are in its record, in `podlanectl endpoint`, the log and the metrics, whatever they hold.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class IdentityTest : public CtlTest {
  protected:
    static Json keys_of(const Json &annotations, const Json &labels = Json::object()) {
        return {{"identity", {"annotations", "labels"}},
                {"nodename", "node-7"},
                {"args", {{"cni", {{"labels", labels}}}}},
                {"capabilities", {{"io.kubernetes.cri.pod-annotations", true}}},
                {"runtimeConfig", {{"io.kubernetes.cri.pod-annotations", annotations}}}};
    }
    // The pods that `endpoint list` selects, by name.
    [[nodiscard]] std::vector<std::string> selected(const std::string &selector) const {
        std::vector<std::string> names;
        const Output output = ctl("endpoint list --json -l " + selector);
        if (output.rc == 0)
            for (const Json &one : Json::parse(output.out))
                names.push_back(one.at("pod_name"));
        return names;
    }
};

TEST_F(IdentityTest, IsShownAndSelects) {
    (void)make(keys_of({{"team", "blue"}}, {{"app", "web"}}), named("shop", "web-0"));
    (void)make(keys_of({{"team", "red"}}, {{"app", "db"}}), named("shop", "db-0"));
    (void)make(Json::object(), named("shop", "old-0"));

    const Json shown = ctl_json("endpoint show shop/web-0").at(0);
    EXPECT_THAT(shown, has_members({{"labels", Json({{"app", "web"}})},
                                    {"annotations", Json({{"team", "blue"}})},
                                    {"node", "node-7"}}));
    EXPECT_THAT(ctl("endpoint show shop/web-0").out, AllOf(HasSubstr("app=web"), HasSubstr("team=blue")));

    using Names = std::vector<std::string>;
    EXPECT_EQ(selected("app=web"), Names{"web-0"});
    EXPECT_EQ(selected("app==web,team=blue"), Names{"web-0"});
    EXPECT_EQ(selected("app=web,team=red"), Names{});
    EXPECT_EQ(selected("app!=web"), (Names{"db-0", "old-0"}));
    EXPECT_EQ(selected("team"), (Names{"db-0", "web-0"}));
    EXPECT_EQ(selected("!team"), Names{"old-0"});
    EXPECT_EQ(ctl("endpoint list -l =x").rc, 2);
    EXPECT_EQ(ctl("endpoint list -l app=nobody").rc, 1);
    EXPECT_THAT(ctl("counter list -l app=web").out, AllOf(HasSubstr("shop/web-0"), Not(HasSubstr("db-0"))));

    const std::string metrics = ctl("metrics").out;
    EXPECT_THAT(metrics, has_all({"pod=\"web-0\"", "node=\"node-7\""}));
    EXPECT_THAT(metrics, Not(HasSubstr("team"))) << "labels of pods are without bounds in number";
    const std::string chosen = ctl("metrics --labels app,team,app -l app=web").out;
    const auto sample = [&](const std::string &words) {
        return testing::ContainsRegex(
            "podlane_endpoint_label\\{namespace=\"shop\",pod=\"web-0\",[^}]*,source=" + words + "\\} 1\n");
    };
    EXPECT_THAT(chosen, AllOf(sample(R"("label",key="app",value="web")"),
                              sample(R"("annotation",key="team",value="blue")"), Not(HasSubstr("db-0"))));
    EXPECT_THAT(ctl("metrics --labels app,,team"), complains(2, {"is no key of a label"}));
}

// A pod's author chooses its annotations and, with some runtimes, its names.
TEST_F(IdentityTest, ForgesNoLineAndNoEscapeSequence) {
    Json keys = keys_of({{"good", "1"},
                         {"forged", "x\n2026 info ADD pod=other"},
                         {"esc", "\033]0;title\007"},
                         {"key\nwith", "line end"},
                         {"key\"},evil", "1"}});
    keys["log"] = {{"file", node_.dir() + "/log"}, {"level", "info"}};
    const Variables who = {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a\nforged;K8S_POD_NAME=b\033[2J\"} 1"}};
    const Pod pod = make(keys, who);
    ASSERT_THAT(del(*pod.container, keys, who), succeeds());
    (void)make(keys, who);

    std::ifstream file(node_.dir() + "/log");
    for (std::string line; std::getline(file, line);) {
        EXPECT_THAT(line, HasSubstr("network=pods")) << "every line is one of Podlane's";
        EXPECT_EQ(line.find('\033'), std::string::npos) << line;
    }
    for (const char *command : {"endpoint list", "endpoint show -l good=1", "counter list", "history", "metrics"}) {
        const std::string out = ctl(command).out;
        EXPECT_NE(out, "") << command;
        EXPECT_EQ(out.find('\033'), std::string::npos) << command << ": " << out;
        EXPECT_THAT(out, Not(HasSubstr("\nforged"))) << command;
    }
    const Json shown = ctl_json("endpoint list").at(0);
    EXPECT_EQ(shown["annotations"], Json({{"good", "1"}}));
}

TEST_F(IdentityTest, GroupsAreListed) {
    Json keys = keys_of({{"team", "blue"}});
    keys["groups"] = {"namespace", "name:tenant-a", "annotation:team"};
    keys["log"] = {{"file", node_.dir() + "/log"}, {"level", "info"}};
    (void)make(keys, named("shop", "web-0"));
    EXPECT_THAT(node_.run("cat " + node_.dir() + "/log"),
                AllOf(HasSubstr(": node node-7; annotations team=blue; "),
                      HasSubstr("; groups namespace:shop, tenant-a, annotation:team=blue\n")));
    (void)make({{"groups", {"namespace"}}}, named("shop", "db-0"));
    EXPECT_EQ(ctl_json("endpoint show shop/web-0").at(0)["groups"],
              Json({"namespace:shop", "tenant-a", "annotation:team=blue"}));
    const Json groups = ctl_json("group list");
    EXPECT_EQ(find(groups, "group", "namespace:shop")["pods"], Json({"shop/db-0", "shop/web-0"}));
    EXPECT_EQ(find(groups, "group", "tenant-a")["endpoints"], 1);
    EXPECT_THAT(ctl("metrics --pod shop/web-0").out,
                testing::ContainsRegex(
                    "podlane_endpoint_group\\{namespace=\"shop\",pod=\"web-0\",[^}]*,group=\"tenant-a\"\\} 1"));
    EXPECT_THAT(ctl("group list").out, HasSubstr("annotation:team=blue"));
}

// Records without labels, of an earlier version: with none of the fields.
TEST_F(IdentityTest, OfAnEarlierVersionIsEmpty) {
    const Pod pod = make(keys_of({{"team", "blue"}}), named("shop", "web-0"));
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    AttachmentRecord stored = require(records.find(pod.container->id(), "eth0")).value();
    EXPECT_EQ(stored.annotations, "team=blue\n");
    stored.annotations.clear();
    stored.node_name.clear();
    ASSERT_TRUE(records.write(stored));
    EXPECT_EQ(ctl_json("endpoint show shop/web-0").at(0)["annotations"], Json::object());
    EXPECT_THAT(ctl("endpoint show shop/web-0"), testing::Field(&Output::rc, 0));
    ASSERT_TRUE(records.erase(pod.container->id(), "eth0"));
    EXPECT_EQ(ctl_json("endpoint show shop/web-0").at(0)["labels"], Json::object());
}

// The runtime's word at DEL may be another one, and cannot be read.
TEST_F(IdentityTest, MayChangeBetweenAddAndDel) {
    const auto container = node_.container();
    const std::string before = node_.state();
    ASSERT_THAT(add(*container, keys_of({{"team", "blue"}})), succeeds());
    Json other = keys_of({{"kubernetes.io/ingress-bandwidth", "nonsense"}, {"x\n", "y"}});
    other["identity"] = "nonsense";
    other["nodename"] = 5;
    EXPECT_THAT(del(*container, other), succeeds());
    EXPECT_EQ(node_.state(), before);
}

} // namespace
} // namespace podlane::test
