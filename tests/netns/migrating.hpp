// SPDX-License-Identifier: MIT
// docs/MIGRATING.md, line by line: what has a counterpart works with it on real pods, and what is not supported is
// refused by name. A line that no case carries out fails, and so does a case without a line.
#pragma once

#include "tests/netns/ctl.hpp"
#include "tests/harness/environment.hpp"

namespace podlane::test {

inline constexpr const char *kAnnotations = "io.kubernetes.cri.pod-annotations";
inline constexpr const char *kUnsupported = "not supported: ";

struct Line {
    std::string theirs, ours;
};

// Of one section.
inline std::vector<Line> lines_below(const std::string &heading) {
    std::ifstream page(source_path("docs/MIGRATING.md"));
    std::vector<Line> lines;
    bool is_inside = false;
    for (std::string text; std::getline(page, text);) {
        if (text.starts_with("## "))
            is_inside = text == "## " + heading;
        if (!is_inside)
            continue;
        if (text.starts_with("|---"))
            lines.pop_back(); // the head of a table
        else if (const auto bar = text.find(" | "); text.starts_with("| ") && bar != std::string::npos)
            lines.push_back({text.substr(2, bar - 2), text.substr(bar + 3, text.size() - bar - 5)});
    }
    return lines;
}

class MigratingTest : public CtlTest {
  protected:
    // Until the end of the line.
    Pod start(const Json &keys = Json::object(), const Variables &who = {}) {
        containers_.push_back(node_.container());
        return look_at(containers_.back(), succeeded(add(*containers_.back(), keys, who)).json);
    }
    void stop_all() {
        for (const auto &container : containers_)
            EXPECT_THAT(del(*container), succeeds());
        containers_.clear();
        EXPECT_THAT(node_.leased(), IsEmpty());
    }
    // A pod with one annotation, which the configuration grants.
    Pod annotated(const std::string &name, const std::string &value, const Json &may,
                  const Json &more = Json::object()) {
        Json keys = {{"podMay", may}, {"podMayNot", "refuse"}, {"runtimeConfig", {{kAnnotations, {{name, value}}}}}};
        keys.update(more);
        return start(keys, named("shop", "web-0"));
    }
    [[nodiscard]] Json shown() const { return ctl_json("endpoint show shop/web-0").at(0); }
    // In the place of the real one, which netns_kubernetes_test runs.
    void answer_as_kubernetes(const Json &answer) const {
        node_.put_plugin("podlane-k8s", "#!/bin/sh\ncat >" + node_.dir() + "/question\necho '" + answer.dump() + "'\n");
    }
    [[nodiscard]] static Json of_kubernetes(const Json &more) {
        Json keys = {{"kubernetes", {{"kubeconfig", "/etc/kubernetes/kubelet.conf"}}}};
        keys.update(more);
        return keys;
    }
    [[nodiscard]] std::string question() const { return read_file(node_.dir() + "/question"); }
    // An IPAM plugin that shows its configuration.
    void put_ipam(const std::string &name) const {
        node_.put_plugin(name, "#!/bin/sh\ncat >" + node_.dir() + R"(/config
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "198.18.9.5/24"}]}'
exit 0)");
    }
    [[nodiscard]] Json ipam_config() const { return Json::parse(read_file(node_.dir() + "/config")).at("ipam"); }
    [[nodiscard]] std::string source_seen_outside(const Json &keys) {
        const Pod pod = start(keys);
        outside_->run("ip route replace 198.18.9.0/24 via 203.0.113.2");
        const EchoServer server(outside_->ns(), true, 7);
        EXPECT_EQ(ask(pod.ns(), Transport::tcp, {ip("203.0.113.1"), 7}), 0);
        const auto callers = server.callers();
        return callers.empty() ? "nobody" : callers[0] == pod.v4 ? "the pod" : to_string(callers[0]);
    }
    void expect_isolated(const Json &mine, const Json &others) {
        const Pod server = start(mine, named("shop", "server")), friendly = start(mine, named("shop", "friend")),
                  foreign = start(others, named("bank", "foreign"));
        const EchoServer echo(server.ns(), true, 7), outside(outside_->ns(), true, 8);
        const auto connect_from = [&](const net::Namespace &from, std::chrono::milliseconds patience) {
            return connect_to(open_socket(from, Transport::tcp, true), {server.v4, 7}, patience);
        };
        EXPECT_EQ(connect_from(friendly.ns(), patience()), 0);
        EXPECT_EQ(connect_from(node_.ns(), patience()), 0) << "the node's probes";
        EXPECT_EQ(connect_from(foreign.ns(), quiet()), ETIMEDOUT);
        outside_->run("ip route replace 198.18.9.0/24 via 203.0.113.2");
        EXPECT_EQ(connect_from(outside_->ns(), quiet()), ETIMEDOUT);
        EXPECT_EQ(ask(server.ns(), Transport::tcp, {ip("203.0.113.1"), 8}), 0) << "out everywhere";
    }
    // Each key is refused by its name. "kubernetes" is one of Podlane's, too.
    void expect_refused(const Json &keys) {
        for (const auto &[key, value] : keys.items())
            EXPECT_THAT(add(*node_.container(), {{key, value}}),
                        fails_with(7, {key == "kubernetes" ? value.begin().key() : key}));
    }
    using Case = std::function<void()>;
    using Cases = std::map<std::string, Case>; // by the words in the first column
    [[nodiscard]] Case refused(Json keys) {
        return [this, keys = std::move(keys)] { expect_refused(keys); };
    }
    void carry_out(const std::string &heading, Cases cases) {
        const std::vector<Line> lines = lines_below(heading);
        EXPECT_FALSE(lines.empty());
        for (const Line &line : lines) {
            SCOPED_TRACE(line.theirs);
            const auto found = cases.find(line.theirs);
            if (found == cases.end()) {
                ADD_FAILURE() << "nothing carries this line out";
                continue;
            }
            if (line.ours.starts_with(kUnsupported)) {
                EXPECT_GT(line.ours.size(), std::string(kUnsupported).size() + 10) << "the reason";
            }
            found->second();
            stop_all();
            cases.erase(found);
        }
        for (const auto &[theirs, unused] : cases)
            ADD_FAILURE() << "the page has no such line: " << theirs;
    }

    std::vector<std::shared_ptr<Container>> containers_;
};

} // namespace podlane::test
