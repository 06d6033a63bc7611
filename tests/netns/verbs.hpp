// SPDX-License-Identifier: MIT
// Common parts of the tests of the verbs: a node with an uplink, and the kernel's objects as `ip` shows them.
#pragma once

#include "loader/attach.hpp"
#include "tests/harness/outcome.hpp"
#include "tests/harness/pod.hpp"
#include "tests/harness/talk.hpp"

namespace podlane::test {

constexpr const char *kGateway4 = "169.254.1.1";
constexpr const char *kGateway6 = "fe80::ecee:eeff:feee:eeee";
constexpr const char *kHostMac = "ee:ee:ee:ee:ee:ee";

// `ip -j` of anything; an empty list if ip prints nothing.
inline Json ip_json(const net::Namespace &where, const std::string &query) {
    const std::string text = must_run(where, words("ip -j -d " + query));
    return text.empty() ? Json::array() : Json::parse(text);
}

inline std::string sysctl(const net::Namespace &where, const std::string &name) {
    std::string text = must_run(where, {"sysctl", "-n", name});
    return text.substr(0, text.find('\n'));
}
inline void set_sysctl(const net::Namespace &where, const std::string &name, const std::string &value) {
    must_run(where, {"sysctl", "-q", "-w", name + "=" + value});
}

// The element whose member `key` is `value`; null if there is none.
inline Json find(const Json &list, const std::string &key, const Json &value) {
    for (const Json &one : list)
        if (one.contains(key) && one[key] == value)
            return one;
    return nullptr;
}

// With the names and addresses of the pod in the place of words that begin with "@".
inline std::string filled(std::string text, const Pod &made) {
    const std::vector<std::pair<std::string, std::string>> words = {
        {"@host", made.host_ifname},
        {"@netns", made.container->path()},
        {"@mac", made.result.at("interfaces").at(1).at("mac")},
        {"@v4", made.text4()},
        {"@v6", made.text6()},
        {"@ll", to_string(made.link_local)}};
    for (const auto &[word, value] : words)
        for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += value.size())
            text.replace(at, word.size(), value);
    return text;
}
// A command on the node or, behind "pod", in the container; must succeed.
inline void run_for(const Node &node, const Pod &made, const std::string &command) {
    const std::string whole = filled(command, made);
    whole.starts_with("pod ") ? made.container->run(whole.substr(4)) : node.run(whole);
}

// NAT, a limit, allowed sources, cluster CIDRs and uplinks: what leaves something in every map and on the node.
inline Json all_features(std::uint64_t rate = 8000000, std::uint64_t burst = 64000000) {
    return {{"ipMasq", true},
            {"clusterCIDRs", {"198.18.0.0/16"}},
            {"allowedSources", {"192.0.2.0/24"}},
            {"capabilities", {{"bandwidth", true}}},
            {"runtimeConfig", {{"bandwidth", {{"ingressRate", rate}, {"ingressBurst", burst}}}}}};
}

class VerbsTest : public testing::Test {
  protected:
    VerbsTest() {
        // Switched on now, so that it changes no route later.
        set_sysctl(node_.ns(), "net.ipv4.ip_forward", "1");
        set_sysctl(node_.ns(), "net.ipv6.conf.all.forwarding", "1");
        // A neighbouring machine behind an uplink of an MTU that is nobody's default.
        node_.run("ip link add up0 mtu 1420 type veth peer name eth0 netns " + outside_->path());
        node_.run("ip addr add 203.0.113.2/24 dev up0");
        node_.run("ip addr add 2001:db8:cafe::2/64 dev up0 nodad");
        node_.run("ip link set up0 addrgenmode none");
        node_.run("ip link set up0 up");
        outside_->run("ip addr add 203.0.113.1/24 dev eth0");
        outside_->run("ip addr add 2001:db8:cafe::1/64 dev eth0 nodad");
        outside_->run("ip link set eth0 up");
        // The link has its carrier a moment after both ends are up.
        if (!wait_until([&] { return find(ip_json(node_.ns(), "link"), "ifname", "up0").at("operstate") == "UP"; }))
            throw std::runtime_error("the uplink stays down");
        node_.run("ip route add default via 203.0.113.1");
        node_.run("ip -6 route add default via 2001:db8:cafe::1");
    }

    Reply add(const Container &container, const Json &keys = Json::object(), const Variables &more = {}) const {
        return node_.cni("ADD", node_.config(keys), container, more);
    }
    Reply del(const Container &container, const Json &keys = Json::object(), const Variables &more = {}) const {
        return node_.cni("DEL", node_.config(keys), container, more);
    }
    // As a runtime does: with the result of the ADD.
    Reply check(const Pod &made, Json keys = Json::object(), const Variables &more = {}) const {
        keys["prevResult"] = made.result;
        return node_.cni("CHECK", node_.config(keys), *made.container, more);
    }

    // A DEL that dies at the n-th call of this name, if it makes as many; none for 0. How many it made.
    [[nodiscard]] int killed_del(const Container &container, const Json &config, const std::string &call,
                                 int number) const {
        const std::string trace = node_.dir() + "/trace";
        Variables variables = attachment(container);
        variables.insert({{"CNI_COMMAND", "DEL"}, {"CNI_PATH", node_.plugins()}});
        std::vector<std::string> argv = words("strace -qq -o " + trace + " -e trace=" + call);
        if (number != 0)
            argv.insert(argv.end(), {"-e", "inject=" + call + ":signal=KILL:when=" + std::to_string(number)});
        argv.push_back(node_.plugins() + "/podlane");
        (void)run(node_.ns(), argv, config.dump(), variables);
        std::ifstream lines(trace);
        int calls = 0;
        for (std::string line; std::getline(lines, line);)
            calls += line.starts_with(call + "(") ? 1 : 0;
        return calls;
    }

    // Of attachments to eth0 that the runtime lists; `keys` are put on top of the network's configuration.
    [[nodiscard]] Json gc_config(const std::vector<const Pod *> &valid, const Json &keys = Json::object()) const {
        Json config = node_.config({{"cniVersion", "1.1.0"}, {"cni.dev/valid-attachments", Json::array()}});
        for (const Pod *made : valid)
            config["cni.dev/valid-attachments"].push_back({{"containerID", made->container->id()}, {"ifname", "eth0"}});
        config.update(keys);
        return config;
    }
    [[nodiscard]] Reply gc(const std::vector<const Pod *> &valid = {}, const Json &keys = Json::object()) const {
        return node_.cni("podlane", "GC", gc_config(valid, keys));
    }

    // With the first address of each family.
    [[nodiscard]] Pod look_at(std::shared_ptr<Container> container, const Json &result) const {
        Pod made = observe(node_, std::move(container));
        made.result = result;
        made.v4 = made.v6 = {};
        for (const Json &one : result.at("ips")) {
            const ip_addr address = prefix(one.at("address")).addr;
            ip_addr &first = is_ipv4(address) ? made.v4 : made.v6;
            if (first == ip_addr{})
                first = address;
        }
        return made;
    }
    // An ADD that must succeed.
    Pod make(const Json &keys = Json::object(), const Variables &more = {}) {
        auto container = node_.container();
        const Reply reply = add(*container, keys, more);
        if (reply.rc != 0)
            throw std::runtime_error("ADD failed: " + reply.out + reply.err);
        return look_at(std::move(container), reply.json);
    }

    [[nodiscard]] std::string everything() const { return node_.state() + node_.run("nft list ruleset"); }
    [[nodiscard]] Json host_link(const Pod &made) const {
        return find(ip_json(node_.ns(), "link"), "ifname", made.host_ifname);
    }
    [[nodiscard]] static Json pod_link(const Container &of) { return find(ip_json(of.ns(), "link"), "ifname", "eth0"); }
    [[nodiscard]] std::uint32_t uplink_ifindex() const {
        return find(ip_json(node_.ns(), "link"), "ifname", "up0").at("ifindex");
    }
    // The sandbox dies; the kernel removes its links a moment later.
    void lose_namespace(const Pod &made) const {
        made.container->remove_namespace();
        if (!wait_until([&] { return host_link(made).is_null(); }))
            throw std::runtime_error("the host-side veth outlives its peer");
    }
    // A map of the node, to read and write.
    template <typename Table> Table open(Result<Table> (*opener)(std::string_view, Access)) const {
        return require(opener(node_.bpffs(), Access::read_write));
    }
    template <typename Table> std::size_t size_of(Result<Table> (*opener)(std::string_view, Access)) const {
        return require(open(opener).entries()).size();
    }
    // Of the endpoint; the test ends if there is none.
    [[nodiscard]] endpoint record(const Pod &made, const std::string &ifname = "eth0") const {
        const auto found =
            require(open(&open_endpoints).find(require(make_endpoint_key(made.container->id(), ifname))));
        if (!found)
            throw std::runtime_error("no endpoint");
        return *found;
    }
    [[nodiscard]] std::optional<bandwidth> limits_of(std::uint32_t ifindex) const {
        return require(open(&open_bandwidths).find(ifindex));
    }
    // Programs of Podlane on a hook of an interface of the node.
    [[nodiscard]] std::vector<Attached> programs(std::uint32_t ifindex, Hook hook) const {
        const auto inside = require(net::enter(node_.ns()));
        return require(attached(ifindex, hook));
    }

    Node node_;
    std::shared_ptr<Container> outside_ = node_.container("outside");
};

// Tests that hold for both ways to attach.
class AttachedTest : public VerbsTest, public testing::WithParamInterface<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
    }
    [[nodiscard]] HookKind kind() const { return GetParam() == "tcx" ? HookKind::tcx : HookKind::clsact; }
    [[nodiscard]] static Json attach_key() { return {{"attach", GetParam()}}; }
};

} // namespace podlane::test
