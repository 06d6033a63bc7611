// A node with an uplink to the outside and pods from the real plugins, each a network namespace that goes with the
// test.
#pragma once

#include "loader/probe.hpp"
#include "maps/tables.hpp"
#include "tests/harness/talk.hpp"
#include "tests/harness/wire.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace podlane::test {

template <typename T> T need(Result<T> result) {
    if (!result)
        throw std::runtime_error(result.error().message);
    return std::move(result).value();
}
inline ip_addr ip(const std::string &text) { return need(parse_ip(text)); }
inline bool slow() { return std::getenv("PODLANE_TEST_SLOW") != nullptr; }
// Bytes of a transfer that takes a while.
inline std::size_t big() { return slow() ? std::size_t{4} << 20U : std::size_t{64} << 20U; }

inline std::string environment(const char *name, const std::string &otherwise) {
    const char *value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

struct Pod {
    std::string name;
    std::string netns; // path
    net::Namespace ns;
    std::string host_ifname;
    std::uint32_t ifindex = 0; // host end
    std::uint32_t mtu = 0;
    Mac mac{};
    Mac gateway_mac{};
    ip_addr v4{};
    ip_addr v6{};
    ip_addr link_local{};
};

class Lab {
  public:
    static constexpr const char *kPods4 = "198.18.9.0/24";
    static constexpr const char *kPods6 = "2001:db8:9::/64";
    static constexpr const char *kNode4 = "203.0.113.2";
    static constexpr const char *kNode6 = "2001:db8:cafe::2";
    static constexpr const char *kOutside4 = "203.0.113.1";
    static constexpr const char *kOutside6 = "2001:db8:cafe::1";

    // `type`: the main plugin; `attach`: Podlane's key of that name; `chained`: the rest of the list, as JSON.
    explicit Lab(std::string type = "podlane", std::string attach = "auto", std::vector<std::string> chained = {})
        : type_(std::move(type)), attach_(std::move(attach)), chained_(std::move(chained)),
          id_("nat-" + std::to_string(getpid()) + "-" + std::to_string(++count_)), state_("/tmp/podlane-" + id_),
          bpffs_("/sys/fs/bpf/podlane-" + id_) {
        std::filesystem::create_directory(state_);
        shell("ip netns add " + name("node") + " && ip netns add " + name("out"));
        shell("ip -n " + name("node") + " link set lo up && ip -n " + name("out") + " link set lo up");
        shell("ip -n " + name("node") + " link add up0 type veth peer name eth0 netns " + name("out"));
        uplink("node", "up0", kNode4, kNode6);
        uplink("out", "eth0", kOutside4, kOutside6);
        run_on_node(std::string("ip route add default via ") + kOutside4 + " && ip -6 route add default via " +
                    kOutside6);
        run_on_node("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    }
    ~Lab() {
        for (const std::string &pod : pods_)
            if (!try_cni("DEL", pod, {}))
                ADD_FAILURE() << "DEL of " << pod << " failed";
        for (const std::string &pod : pods_)
            std::system(("ip netns del " + name(pod)).c_str());
        std::system(("ip netns del " + name("node") + "; ip netns del " + name("out")).c_str());
        std::error_code ignored;
        std::filesystem::remove_all(state_, ignored);
        std::filesystem::remove_all(bpffs_, ignored);
    }
    Lab(const Lab &) = delete;
    Lab &operator=(const Lab &) = delete;

    // `keys`: of the main plugin's configuration; `runtime`: the runtimeConfig of all plugins; as JSON members.
    Pod add_pod(const std::string &pod, const std::string &keys = {}, const std::string &runtime = {}) {
        shell("ip netns add " + name(pod));
        pods_.push_back(pod);
        keys_[pod] = {keys, runtime};
        if (!try_cni("ADD", pod, keys_[pod]))
            throw std::runtime_error("ADD of " + pod + " failed: " + last_output_);
        return look_at(pod);
    }

    [[nodiscard]] net::Namespace node_ns() const { return namespace_of("node"); }
    [[nodiscard]] net::Namespace outside_ns() const { return namespace_of("out"); }
    [[nodiscard]] const std::string &bpffs() const { return bpffs_; }

    void run_on_node(const std::string &command, const std::string &input = {}) const {
        (void)output(node_ns(), command, input);
    }
    [[nodiscard]] std::string output_on_node(const std::string &command) const { return output(node_ns(), command); }
    void run_in(const Pod &pod, const std::string &command) const { (void)output(pod.ns, command); }
    [[nodiscard]] std::string output_in(const Pod &pod, const std::string &command) const {
        return output(pod.ns, command);
    }
    [[nodiscard]] bool ping(const Pod &from, const ip_addr &to) const {
        return output(from.ns, "ping -n -c 2 -i 0.2 -W " + std::to_string(patience().count() / 1000) + " " +
                                   to_string(to) + " >/dev/null && echo yes || true") == "yes\n";
    }

    [[nodiscard]] struct count counted(const Pod &pod, reason why) const {
        return need(need(Counters::open(bpffs_, Access::read_only)).sum(pod.ifindex)).by_reason[why];
    }
    [[nodiscard]] std::uint64_t count(const Pod &pod, reason why) const { return counted(pod, why).packets; }
    [[nodiscard]] std::size_t path_count() const { return need(paths().entries()).size(); }
    [[nodiscard]] bool has_path(const Pod &pod, path_via via) const {
        for (const auto &[key, path] : need(paths().entries()))
            if (key.ifindex == pod.ifindex && path.via == via)
                return true;
        return false;
    }
    void erase_paths() const {
        const Paths all = paths();
        for (const auto &[key, path] : need(all.entries()))
            (void)need(all.erase(key));
    }

  private:
    struct Keys {
        std::string main;
        std::string runtime;
    };
    [[nodiscard]] std::string name(const std::string &of) const { return id_ + "-" + of; }
    [[nodiscard]] net::Namespace namespace_of(const std::string &of) const {
        return need(net::Namespace::open("/run/netns/" + name(of)));
    }
    [[nodiscard]] Paths paths() const { return need(open_paths(bpffs_, Access::read_write)); }

    static void shell(const std::string &command) {
        if (std::system(command.c_str()) != 0)
            throw std::runtime_error("failed: " + command);
    }
    static std::string output(const net::Namespace &where, const std::string &command, const std::string &input = {}) {
        auto inside = net::enter(where);
        if (!inside)
            throw std::runtime_error(inside.error().message);
        const std::string file = "/tmp/podlane-input-" + std::to_string(getpid());
        std::ofstream(file) << input;
        FILE *pipe = popen(("exec 2>&1 <" + file + "; " + command).c_str(), "r");
        std::string text;
        std::array<char, 4096> part{};
        for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) != 0;)
            text.append(part.data(), n);
        const int status = pclose(pipe);
        std::filesystem::remove(file);
        if (status != 0)
            throw std::runtime_error(command + ": " + text);
        return text;
    }
    void uplink(const std::string &where, const std::string &link, const std::string &v4, const std::string &v6) const {
        const std::string in = "ip -n " + name(where) + " ";
        shell(in + "addr add " + v4 + "/24 dev " + link + " && " + in + "addr add " + v6 + "/64 dev " + link +
              " nodad && " + in + "link set " + link + " up");
    }

    bool try_cni(const std::string &verb, const std::string &pod, const Keys &keys);
    [[nodiscard]] std::string configuration(std::size_t plugin, const Keys &keys, const std::string &previous) const;
    Pod look_at(const std::string &pod) const;

    std::string type_;
    std::string attach_;
    std::vector<std::string> chained_;
    static inline int count_ = 0;
    std::string id_;
    std::string state_;
    std::string bpffs_;
    std::vector<std::string> pods_;
    std::map<std::string, Keys> keys_;
    std::map<std::string, std::string> results_;
    std::string last_output_;
};

inline std::string Lab::configuration(std::size_t plugin, const Keys &keys, const std::string &previous) const {
    std::string text = R"({"cniVersion":"1.0.0","name":"lab",)";
    if (plugin == 0) {
        text += R"("type":")" + type_ + R"(","ipam":{"type":"host-local","dataDir":")" + state_ +
                R"(","ranges":[[{"subnet":")" + kPods4 + R"("}],[{"subnet":")" + kPods6 + R"("}]],)" +
                R"("routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]})";
        if (type_ == "podlane")
            text += R"(,"bpffs":")" + bpffs_ + R"(","attach":")" + attach_ + "\"";
        if (!keys.main.empty())
            text += "," + keys.main;
    } else {
        text += chained_[plugin - 1];
    }
    if (!keys.runtime.empty())
        text += R"(,"runtimeConfig":{)" + keys.runtime + "}";
    if (!previous.empty())
        text += R"(,"prevResult":)" + previous;
    return text + "}";
}

inline bool Lab::try_cni(const std::string &verb, const std::string &pod, const Keys &given) {
    const Keys keys = verb == "ADD" ? given : keys_[pod];
    const std::size_t plugins = 1 + chained_.size();
    bool all_well = true;
    for (std::size_t i = 0; i < plugins; ++i) {
        const std::size_t plugin = verb == "ADD" ? i : plugins - 1 - i;
        const std::string config = configuration(plugin, keys, verb == "ADD" && i == 0 ? "" : results_[pod]);
        const std::size_t at = config.find(R"("type":")") + 8;
        const std::string type = config.substr(at, config.find('"', at) - at);
        const std::string plugin_dir = environment("CNI_PLUGINS", "/usr/lib/cni");
        const std::string binary = type == "podlane" ? environment("PODLANE_BIN", "podlane") : plugin_dir + "/" + type;
        try {
            const std::string out =
                output(node_ns(),
                       "CNI_COMMAND=" + verb + " CNI_CONTAINERID=" + name(pod) + " CNI_NETNS=/run/netns/" + name(pod) +
                           " CNI_IFNAME=eth0 CNI_PATH=" + plugin_dir + " " + binary,
                       config);
            if (verb == "ADD")
                results_[pod] = out;
        } catch (const std::runtime_error &error) {
            last_output_ = error.what();
            ADD_FAILURE() << last_output_;
            all_well = false;
        }
    }
    return all_well;
}

inline Pod Lab::look_at(const std::string &pod) const {
    Pod made{.name = pod, .netns = "/run/netns/" + name(pod), .ns = namespace_of(pod)};
    const auto word = [&](const net::Namespace &where, const std::string &command) {
        std::string text = output(where, command);
        return text.substr(0, text.find_first_of(" /\n"));
    };
    made.ifindex = static_cast<std::uint32_t>(
        std::stoul(word(made.ns, "ip -o link show eth0 | sed -n 's/.*eth0@if\\([0-9]*\\):.*/\\1/p'")));
    made.host_ifname =
        word(node_ns(), "ip -o link | sed -n 's/^" + std::to_string(made.ifindex) + ": \\([^@]*\\)@.*/\\1/p'");
    made.mtu = static_cast<std::uint32_t>(std::stoul(word(made.ns, "ip -o link show eth0 | sed 's/.*mtu //'")));
    const std::string mac = "ip -o link show $L | sed 's/.*link.ether //'";
    made.mac = need(parse_mac(word(made.ns, "L=eth0; " + mac)));
    made.gateway_mac = need(parse_mac(word(node_ns(), "L=" + made.host_ifname + "; " + mac)));
    made.v4 = ip(word(made.ns, "ip -4 -o addr show eth0 | awk '{print $4}'"));
    made.v6 = ip(word(made.ns, "ip -6 -o addr show eth0 scope global | awk '{print $4}'"));
    made.link_local = ip(word(made.ns, "ip -6 -o addr show eth0 scope link | awk '{print $4}'"));
    return made;
}

// How a lab's programs are attached, and the family a test speaks.
struct LabParameter {
    std::string attach;
    bool ipv4 = true;
};

inline std::string lab_parameter_text(const LabParameter &of) {
    return std::string(of.attach == "clsact" ? "Clsact" : "Tcx") + (of.ipv4 ? "V4" : "V6");
}
inline void PrintTo(const LabParameter &of, std::ostream *out) { *out << lab_parameter_text(of); }
inline std::string lab_parameter_name(const testing::TestParamInfo<LabParameter> &info) {
    return lab_parameter_text(info.param);
}
inline auto lab_parameters() {
    return testing::Values(LabParameter{"tcx", true}, LabParameter{"tcx", false}, LabParameter{"clsact", true},
                           LabParameter{"clsact", false});
}

// A fresh lab for each test; the parameter says how programs are attached and which family is spoken.
template <typename Parameter> class LabTestOf : public testing::TestWithParam<Parameter> {
  protected:
    [[nodiscard]] virtual const LabParameter &lab_parameter() const = 0;
    virtual std::vector<std::string> chained() const { return {}; }

    void SetUp() override {
        if (lab_parameter().attach == "tcx" && !has_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        lab_.emplace("podlane", lab_parameter().attach, chained());
    }
    [[nodiscard]] bool ipv4() const { return lab_parameter().ipv4; }
    [[nodiscard]] ip_addr addr(const Pod &pod) const { return ipv4() ? pod.v4 : pod.v6; }
    [[nodiscard]] ip_addr node_addr() const { return ip(ipv4() ? Lab::kNode4 : Lab::kNode6); }
    [[nodiscard]] ip_addr outside_addr() const { return ip(ipv4() ? Lab::kOutside4 : Lab::kOutside6); }
    [[nodiscard]] std::string pod_range() const { return ipv4() ? Lab::kPods4 : Lab::kPods6; }
    [[nodiscard]] std::string iptables() const { return ipv4() ? "iptables" : "ip6tables"; }

    std::optional<Lab> lab_;
};

class LabTest : public LabTestOf<LabParameter> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return GetParam(); }
};

} // namespace podlane::test
