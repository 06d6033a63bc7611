// SPDX-License-Identifier: MIT
// Which rules of netfilter may stop a forwarded packet: from listings as nft and iptables-save print them.
#include "tools/podlanectl/doctor/forward_rules.hpp"
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

} // namespace
} // namespace podlane::ctl
