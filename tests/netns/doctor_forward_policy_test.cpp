// SPDX-License-Identifier: MIT
// podlanectl doctor finds a firewall that drops forwarded packets of pods, and not one that accepts the pods.
#include "tests/netns/doctor.hpp"
#include "tests/netns/doctor_networks.hpp"

namespace podlane::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DoctorForwardPolicyTest : public Doctor {
  protected:
    [[nodiscard]] std::vector<std::string> found() {
        std::vector<std::string> all;
        for (const Json &one : findings())
            if (one.at("check") == "forward-policy") {
                EXPECT_EQ(one.at("severity"), "notice");
                all.push_back(one.at("finding"));
            }
        EXPECT_EQ(rc_, 0);
        return all;
    }
    void put_chain(const std::string &policy, const std::vector<std::string> &rules) {
        on_node("nft add table inet wall");
        on_node("nft add chain inet wall forward { type filter hook forward priority 10 ; policy " + policy + " ; }");
        for (const std::string &rule : rules)
            on_node("nft add rule inet wall forward " + rule);
    }
    [[nodiscard]] bool pods_connect() {
        const Pod &other = keep(host_);
        return run(kept_.front().container->ns(), words("ping -c 1 -W 1 " + other.text4())).rc == 0;
    }

    const Json host_ = {{"firstPacket", "host"}};
};

TEST_F(DoctorForwardPolicyTest, OfDockerAndUfw) {
    (void)keep(host_);
    EXPECT_TRUE(pods_connect());
    EXPECT_THAT(found(), IsEmpty());
    for (const std::string kind : {"legacy", "nft"}) {
        const std::string iptables = "iptables-" + kind + " -w ";
        on_node(iptables + "-P FORWARD DROP");
        EXPECT_FALSE(pods_connect());
        EXPECT_THAT(found(), ElementsAre(AllOf(HasSubstr("chain filter FORWARD (ip"),
                                               HasSubstr("no rule in it accepts their interfaces or addresses"))));
        on_node(iptables + "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT");
        on_node(iptables + "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
        on_node(iptables + "-N KUBE-FORWARD");
        on_node(iptables + "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT");
        on_node(iptables + "-A FORWARD -j KUBE-FORWARD");
        EXPECT_EQ(found().size(), 1U);
        on_node(iptables + "-I FORWARD -i cali+ -j ACCEPT"); // the remedy
        on_node(iptables + "-I FORWARD -o cali+ -j ACCEPT");
        EXPECT_TRUE(pods_connect());
        EXPECT_THAT(found(), IsEmpty());
    }
}

TEST_F(DoctorForwardPolicyTest, OfNftAndFirewalld) {
    (void)keep({{"firstPacket", "host"}, {"fastPath", "off"}});
    for (const std::string policy : {"drop", "accept"}) {
        put_chain(policy, {"ct state { established, related } accept", "ct status dnat accept", "iifname lo accept",
                           "ct state invalid drop", "reject with icmpx type admin-prohibited"});
        EXPECT_FALSE(pods_connect());
        EXPECT_THAT(found(), ElementsAre(HasSubstr("chain wall forward (inet) drops forwarded packets of pods")));
        on_node("nft delete table inet wall");
    }
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(DoctorForwardPolicyTest, ChainsThatMayAcceptPodsAreNone) {
    const std::string pod = keep(host_).text4();
    configure(*this, {{"ipMasq", true}}); // 198.18.77.0/24
    const std::vector<std::string> rules = {"ip saddr " + pod + " accept",
                                            "ip saddr 198.18.77.8/30 accept",
                                            "ip saddr 198.18.0.0/15 accept",
                                            "iifname cali* accept",
                                            "oifname up0 accept",
                                            "meta mark 0x1 accept",
                                            "tcp dport 80 accept"};
    for (const std::string &rule : rules) {
        put_chain("drop", {rule});
        EXPECT_THAT(found(), IsEmpty()) << rule;
        on_node("nft delete table inet wall");
    }
}

TEST_F(DoctorForwardPolicyTest, NotOfPodsThatBypassIt) {
    put_chain("drop", {});
    EXPECT_THAT(found(), IsEmpty());
    (void)keep(host_);
    EXPECT_EQ(found().size(), 1U);
}

} // namespace
} // namespace podlane::test
