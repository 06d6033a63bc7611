// SPDX-License-Identifier: MIT
// A node with an uplink to the outside and pods from the real plugins: what the tests of the dataplane stand on.
#pragma once

#include "tests/harness/outcome.hpp"
#include "tests/harness/pod.hpp"
#include "tests/harness/talk.hpp"

namespace podlane::test {

// In this time a SYN that nobody answers is sent twice.
constexpr std::chrono::milliseconds kRetransmitted{2500};

// Bytes of a transfer that takes a while.
inline std::size_t big() { return slow() ? std::size_t{4} << 20U : std::size_t{64} << 20U; }

class Lab {
  public:
    static constexpr const char *kPods4 = "198.18.9.0/24";
    static constexpr const char *kPods6 = "2001:db8:9::/64";
    static constexpr const char *kNode4 = "203.0.113.2";
    static constexpr const char *kNode6 = "2001:db8:cafe::2";
    static constexpr const char *kOutside4 = "203.0.113.1";
    static constexpr const char *kOutside6 = "2001:db8:cafe::1";

    // `main`: the configuration of the main plugin; `chained`: of the plugins behind it.
    Lab() : outside_(node_.container("outside")) {
        node_.run("ip link add up0 type veth peer name eth0 netns " + outside_->path());
        uplink(node_.ns(), "up0", kNode4, kNode6);
        uplink(outside_->ns(), "eth0", kOutside4, kOutside6);
        node_.run(std::string("ip route add default via ") + kOutside4);
        node_.run(std::string("ip -6 route add default via ") + kOutside6);
        node_.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    }
    ~Lab() {
        for (const Pod &pod : pods_)
            detach_pod(pod);
    }
    Lab(const Lab &) = delete;
    Lab &operator=(const Lab &) = delete;

    // `plugins`: the whole list. `arguments`: runtimeConfig for those that declare the capability.
    Pod add_pod(const std::vector<Json> &plugins, const Json &arguments = Json::object()) {
        Pod pod = attach_pod(node_, node_.container(), plugins, arguments);
        pods_.push_back(pod);
        return pod;
    }
    // Podlane alone with `keys`.
    Pod add_pod(const Json &keys = Json::object()) { return add_pod(std::vector<Json>{node_.config(keys)}); }

    [[nodiscard]] Node &node() { return node_; }
    [[nodiscard]] const net::Namespace &outside() const { return outside_->ns(); }

    [[nodiscard]] struct count counted(const Pod &pod, reason why) const { return node_.counted(pod.ifindex, why); }
    [[nodiscard]] std::uint64_t count(const Pod &pod, reason why) const { return counted(pod, why).packets; }
    [[nodiscard]] std::size_t path_count() const { return require(flows().entries()).size(); }
    void erase_paths() const {
        const Flows all = flows();
        for (const auto &[key, flow] : require(all.entries()))
            (void)require(all.remove(key));
    }

  private:
    [[nodiscard]] Flows flows() const { return require(open_flows(node_.bpffs(), Access::read_write)); }

    static void uplink(const net::Namespace &where, const std::string &link, const std::string &v4,
                       const std::string &v6) {
        for (const std::string &command :
             {"ip addr add " + v4 + "/24 dev " + link, "ip addr add " + v6 + "/64 dev " + link + " nodad",
              "ip link set " + link + " up"})
            (void)must_run(where, words(command));
    }

    Node node_;
    std::shared_ptr<Container> outside_;
    std::vector<Pod> pods_;
};

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
// Of those that attach as the kernel can.
inline std::string lab_family_name(const testing::TestParamInfo<LabParameter> &info) {
    return info.param.ipv4 ? "V4" : "V6";
}
inline auto lab_parameters() {
    return testing::Values(LabParameter{"tcx", true}, LabParameter{"tcx", false}, LabParameter{"clsact", true},
                           LabParameter{"clsact", false});
}

inline std::string family_name(const testing::TestParamInfo<bool> &info) { return info.param ? "V4" : "V6"; }

// A fresh lab for each test; the parameter says how programs are attached and which family is spoken.
template <typename Parameter> class LabTestOf : public testing::TestWithParam<Parameter> {
  protected:
    [[nodiscard]] virtual const LabParameter &lab_parameter() const = 0;
    void SetUp() override {
        if (lab_parameter().attach == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
        if (lab_parameter().attach == "clsact" && kernel_can_tcx() && slow())
            GTEST_SKIP() << "left to kernels without tcx, as time is short";
        lab_.emplace();
        prepare();
    }
    virtual void prepare() {} // what a test needs beside the lab
    // A pod of Podlane's, its programs attached as the parameter says.
    Pod add_pod(const Json &keys = Json::object()) { return lab_->add_pod(with_attach(keys)); }
    [[nodiscard]] Json with_attach(Json keys = Json::object()) const {
        keys["attach"] = lab_parameter().attach;
        return keys;
    }
    // Another interface of the node, with addresses of another link.
    void add_up1() {
        lab_->node().run("ip link add up1 type veth peer name far1");
        lab_->node().run("ip addr add 192.0.2.1/24 dev up1");
        lab_->node().run("ip addr add 2001:db8:2::1/64 dev up1 nodad");
        for (const char *link : {"up1", "far1"})
            lab_->node().run(std::string("ip link set up ") + link);
    }
    [[nodiscard]] bool ping(const net::Namespace &from, const ip_addr &to) const {
        return test::ping(from, to_string(to), 2);
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

// Pods a_ and b_, and an echo server in b_, which a_ calls.
class PairTest : public LabTest {
  protected:
    void start(const Json &keys_of_a, const Json &keys_of_b) {
        a_ = add_pod(keys_of_a);
        b_ = add_pod(keys_of_b);
        server_.emplace(b_.ns(), ipv4(), kPort);
    }
    void start(const Json &keys = Json::object()) { start(keys, keys); }
    [[nodiscard]] Endpoint server() const { return {addr(b_), kPort}; }
    [[nodiscard]] Fd call(Transport transport = Transport::tcp) const {
        return connected(a_.ns(), transport, server());
    }

    static constexpr std::uint16_t kPort = 7;
    Pod a_, b_;
    std::optional<EchoServer> server_;
};

} // namespace podlane::test
