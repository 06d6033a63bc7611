// SPDX-License-Identifier: MIT
// Which rules of netfilter may stop a forwarded packet: from listings as nft and iptables-save print them.
#include "tools/podlanectl/doctor/forward_rules.hpp"
#include "tools/podlanectl/doctor/nat_rules.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl {
namespace {

using Chains = std::vector<std::string>;

std::string at_forward(const std::string &rules) {
    return "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\t" +
           rules + "\n\t}\n}\n";
}

TEST(NftRules, drop_reject_and_the_policy_count) {
    const Chains found = {"chain filter FORWARD (ip)"};
    EXPECT_EQ(dropping_chains_of_nft(at_forward("ip saddr 198.18.0.0/16 counter packets 0 bytes 0 drop")), found);
    EXPECT_EQ(dropping_chains_of_nft(at_forward("reject with icmp port-unreachable")), found);
    EXPECT_EQ(dropping_chains_of_nft("table inet f {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy "
                                     "drop;\n\t}\n}\n"),
              Chains{"chain f c (inet)"});
    EXPECT_EQ(dropping_chains_of_nft(at_forward("accept")), Chains{});
}

TEST(NftRules, jumps_are_followed_within_their_table) {
    const std::string listing =
        "table ip filter {\n\tchain POLICY {\n\t\tgoto DENY\n\t}\n\tchain DENY {\n\t\tdrop\n\t}\n"
        "\tchain FORWARD {\n\t\ttype filter hook forward priority 0;\n\t\tjump POLICY\n\t}\n}\n"
        "table ip other {\n\tchain FORWARD {\n\t\ttype filter hook forward priority 0;\n"
        "\t\tjump POLICY\n\t}\n\tchain loop {\n\t\tjump loop\n\t}\n}\n";
    EXPECT_EQ(dropping_chains_of_nft(listing), Chains{"chain filter FORWARD (ip)"});
}

TEST(NftRules, of_kube_proxy_of_podlane_and_at_other_hooks_do_not_count) {
    EXPECT_EQ(dropping_chains_of_nft("table ip filter {\n\tchain KUBE-FORWARD {\n\t\tct state invalid drop\n\t}\n"
                                     "\tchain FORWARD {\n\t\ttype filter hook forward priority 0;\n"
                                     "\t\tjump KUBE-FORWARD\n\t}\n\tchain INPUT {\n\t\ttype filter hook input "
                                     "priority 0; policy drop;\n\t}\n}\n"),
              Chains{});
    EXPECT_EQ(dropping_chains_of_nft("table inet podlane-pods {\n\tchain c {\n\t\ttype filter hook forward priority 0; "
                                     "policy drop;\n\t}\n}\n"),
              Chains{});
    EXPECT_EQ(dropping_chains_of_nft("table bridge b {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy "
                                     "drop;\n\t}\n}\n"),
              Chains{});
    EXPECT_EQ(dropping_chains_of_nft(""), Chains{});
}

TEST(IptablesRules, policy_drop_reject_and_jumps_count) {
    const Chains found = {"chain filter FORWARD (iptables)"};
    EXPECT_EQ(dropping_chains_of_iptables("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n", "iptables"), found);
    EXPECT_EQ(dropping_chains_of_iptables("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 198.18.0.1/32 -j REJECT "
                                          "--reject-with icmp-port-unreachable\nCOMMIT\n",
                                          "iptables"),
              found);
    EXPECT_EQ(
        dropping_chains_of_iptables(":FORWARD ACCEPT [0:0]\n:P - [0:0]\n-A FORWARD -j P\n-A P -j DROP\n", "iptables"),
        found);
    EXPECT_EQ(dropping_chains_of_iptables(":INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -j DROP\n", "iptables"),
              Chains{});
}

TEST(RulesOfServices, AreReadInBothModesOfKubeProxy) {
    const auto found = [](std::string_view listing) {
        std::vector<std::string> texts;
        for (const ip_addr &addr : cluster_ips_of(listing))
            texts.push_back(to_string(addr));
        return texts;
    };
    using Texts = std::vector<std::string>;
    EXPECT_EQ(found("table ip kube-proxy {\n\tmap service-ips {\n\t\telements = { 198.19.0.10 . udp . 53 : goto x,\n"
                    "\t\t\t     198.19.0.1 . tcp . 443 : goto y }\n\t}\n}\n"),
              (Texts{"198.19.0.10", "198.19.0.1"}));
    EXPECT_EQ(found("table ip6 nat {\n\tchain KUBE-SERVICES {\n\t\tip6 daddr 2001:db8::a tcp dport 443 accept\n\t}\n"
                    "\tchain OTHER {\n\t\tip6 daddr 2001:db8::b accept\n"),
              Texts{"2001:db8::a"});
    EXPECT_EQ(found("-A KUBE-SERVICES -d 198.19.0.1/32 -p tcp -j KUBE-SVC-1\n-A KUBE-SERVICES -j KUBE-NODEPORTS\n"),
              Texts{"198.19.0.1"});
}

TEST(RulesOfMasquerading, CoverARangeUnlessTheyGoByAMark) {
    const auto covers = [](std::string_view listing) {
        return masquerades_in(listing, Prefix{ipv4_from_host_order(0xc6120100U), 24}); // 198.18.1.0/24
    };
    EXPECT_TRUE(covers("-A FLANNEL-POSTRTG -s 198.18.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully\n"));
    EXPECT_TRUE(covers("table ip nat {\n\tchain f {\n\t\tip saddr 198.18.0.0/16 counter masquerade fully-random\n"));
    EXPECT_TRUE(covers("-A IP-MASQ-AGENT -j MASQUERADE\n"));
    EXPECT_FALSE(covers("-A FLANNEL-POSTRTG -s 198.18.1.0/25 -j MASQUERADE\n"));
    EXPECT_FALSE(covers("-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n"));
    EXPECT_FALSE(covers("-A POSTROUTING -m mark --mark 0x2000/0x2000 -j MASQUERADE\n"));
    EXPECT_TRUE(covers("table ip nat {\n\tchain KUBE-POSTROUTING {\n\t\tmasquerade fully-random\n\t}\n\tchain f {\n"
                       "\t\tip saddr != 192.0.2.0/24 masquerade\n"));
    EXPECT_FALSE(covers("table ip kube-proxy {\n\tchain masquerading {\n\t\tmasquerade fully-random\n"));
    EXPECT_FALSE(covers("table ip podlane-pods {\n\tchain nat {\n\t\tip saddr @pods4 masquerade\n"));
}

} // namespace
} // namespace podlane::ctl
