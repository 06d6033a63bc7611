// SPDX-License-Identifier: MIT
// Which chains at the hook forward refuse all forwarded packets of pods: from listings as nft and iptables-save print
// them.
#include "tools/podlanectl/doctor/forward_policy.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl::forwarding {
namespace {

using Found = std::vector<std::string>;

const Found kNone;
const Found kOfIptables = {"chain filter FORWARD (iptables)"};
const Found kOfNft = {"chain f c (inet)"};

Pods pods() {
    return {{"caliaaaa"}, {"up0"}, {Prefix{ipv4_from_host_order(0xc6120100U), 24}}, true, false}; // 198.18.1.0/24
}

Found of_iptables(const std::string &rules, const std::string &policy = "DROP") {
    return refusing_chains_of_iptables("*filter\n:FORWARD " + policy + " [0:0]\n:X - [0:0]\n" + rules + "COMMIT\n",
                                       "iptables", pods());
}

Found of_nft(const std::string &rules, const std::string &policy = "drop", const std::string &more = "") {
    return refusing_chains_of_nft("table inet f {\n" + more +
                                      "\tchain c {\n\t\ttype filter hook forward priority filter; policy " + policy +
                                      ";\n" + rules + "\t}\n}\n",
                                  pods());
}

const std::string kDocker = "-A FORWARD -j DOCKER-USER\n-A FORWARD -o docker0 -m conntrack --ctstate "
                            "RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -o docker0 -j DOCKER\n-A FORWARD -i docker0 ! "
                            "-o docker0 -j ACCEPT\n-A FORWARD -i docker0 -o docker0 -j ACCEPT\n-A DOCKER -d "
                            "172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT\n"
                            "-A DOCKER-USER -j RETURN\n";
const std::string kKubeProxy =
    "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n"
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
    "-A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT\n"
    "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";
const std::string kUfw = "-A FORWARD -j ufw-before-forward\n-A FORWARD -j ufw-reject-forward\n-A ufw-before-forward -m "
                         "conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A ufw-before-forward -p icmp -m icmp "
                         "--icmp-type 8 -j ACCEPT\n-A ufw-before-forward -j ufw-user-forward\n";

TEST(RefusingIptables, RulesForOthersAcceptNoPod) {
    for (const std::string &rules :
         {std::string(), kDocker, kKubeProxy, kUfw, std::string("-A FORWARD -s 192.168.122.0/24 -j ACCEPT\n"),
          std::string("-A FORWARD -i br-+ -j ACCEPT\n"), std::string("-A FORWARD -i up0 -o up0 -j ACCEPT\n"),
          std::string("-A FORWARD -i docker0 -j X\n-A X -j ACCEPT\n"), std::string("-A FORWARD -j LOG\n")})
        EXPECT_EQ(of_iptables(rules), kOfIptables) << rules;
    EXPECT_EQ(of_iptables("-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n", "ACCEPT"), kOfIptables);
    EXPECT_EQ(of_iptables("-A FORWARD -i docker0 -j ACCEPT\n-A FORWARD -j DROP\n-A FORWARD -j ACCEPT\n", "ACCEPT"),
              kOfIptables);
}

TEST(RefusingIptables, WhatMayAcceptAPodIsNoFinding) {
    for (const std::string rules :
         {"-A FORWARD -i cali+ -j ACCEPT\n", "-A FORWARD -i cali+ -o lan1 -j ACCEPT\n",
          "-A FORWARD -o caliaaaa -j ACCEPT\n", "-A FORWARD -i up0 -j ACCEPT\n",
          "-A FORWARD -s 198.18.0.0/16 -j ACCEPT\n", "-A FORWARD -s 198.18.1.7/32 -j ACCEPT\n",
          "-A FORWARD ! -i docker0 -j ACCEPT\n", "-A FORWARD -d 10.0.0.0/8 -j ACCEPT\n",
          "-A FORWARD ! -s 10.0.0.0/8 -j ACCEPT\n", "-A FORWARD -m set --match-set pods src -j ACCEPT\n",
          "-A FORWARD -m mark --mark 0x1 -j ACCEPT\n", "-A FORWARD -j X\n-A X -j ACCEPT\n",
          "-A FORWARD -g X\n-A X -p tcp -j ACCEPT\n", "-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\n",
          "-A FORWARD -m conntrack ! --ctstate INVALID -j ACCEPT\n", "-A FORWARD -p tcp -j ACCEPT\n",
          "-A FORWARD -j NFQUEUE --queue-num 0\n"})
        EXPECT_EQ(of_iptables(rules), kNone) << rules;
    for (const std::string rules :
         {"", "-A FORWARD -s 10.0.0.0/8 -j DROP\n", "-A FORWARD -m mark --mark 0x1 -j RETURN\n-A FORWARD -j DROP\n",
          "-A FORWARD -g X\n-A FORWARD -j DROP\n", "-A FORWARD -j X\n-A X -j DROP\n"})
        EXPECT_EQ(of_iptables(rules, "ACCEPT"), kNone) << rules;
}

TEST(RefusingIptables, OnlyOfAFamilyThatPodsHave) {
    const std::string listing = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n";
    EXPECT_EQ(refusing_chains_of_iptables(listing, "ip6tables", pods()), kNone);
    Pods both = pods();
    both.uses_ipv6 = true;
    EXPECT_EQ(refusing_chains_of_iptables(listing, "ip6tables", both), Found{"chain filter FORWARD (ip6tables)"});
}

TEST(RefusingNft, RulesForOthersAcceptNoPod) {
    for (const std::string rules :
         {"", "\t\tct state established,related counter packets 1 bytes 60 accept\n",
          "\t\tct state { established, related } accept\n",
          "\t\tct state vmap { invalid : drop, established : accept, related : accept }\n",
          "\t\tiifname \"lo\" accept\n", "\t\tiifname \"docker0\" oifname != \"docker0\" accept\n",
          "\t\tmeta l4proto icmp accept\n", "\t\ticmpv6 type { 1, 2 } accept\n",
          "\t\tip saddr 192.168.122.0/24 accept\n", "\t\tip saddr 10.0.0.1 drop comment \"accept\"\n"})
        EXPECT_EQ(of_nft(rules), kOfNft) << rules;
    EXPECT_EQ(of_nft("\t\tcounter packets 3 bytes 180 drop\n", "accept"), kOfNft);
    // As firewalld makes it.
    EXPECT_EQ(of_nft("\t\tct state { established, related } accept\n\t\tct status dnat accept\n\t\tiifname \"lo\" "
                     "accept\n\t\tct state invalid drop\n\t\tjump zones\n\t\treject with icmpx admin-prohibited\n",
                     "accept", "\tchain zones {\n\t\tiifname \"docker0\" goto z\n\t}\n\tchain z {\n\t\taccept\n\t}\n"),
              kOfNft);
}

TEST(RefusingNft, WhatMayAcceptAPodIsNoFinding) {
    for (const std::string rules : {"\t\tiifname \"cali*\" accept\n",
                                    "\t\toifname \"caliaaaa\" accept\n",
                                    "\t\toifname \"up0\" accept\n",
                                    "\t\tiifname != \"docker0\" accept\n",
                                    "\t\tiifname { \"a\", \"b\" } accept\n",
                                    "\t\tiifname @s accept\n",
                                    "\t\tiifname . ip saddr @s accept\n",
                                    "\t\tiifname vmap { \"docker0\" : accept }\n",
                                    "\t\tip saddr @pods accept\n",
                                    "\t\tip saddr { 10.0.0.1, 198.18.1.1 } accept\n",
                                    "\t\tip saddr != 10.0.0.0/8 accept\n",
                                    "\t\tip saddr 198.18.1.0-198.18.1.9 accept\n",
                                    "\t\tip saddr { 198.18.1.2 comment \"x\" } accept\n",
                                    "\t\tlog prefix \"may drop this\" accept\n",
                                    "\t\tiifname \"cali*\" oifname \"lan1\" accept\n",
                                    "\t\tmeta mark 0x1 accept\n",
                                    "\t\tct state established,related,new accept\n",
                                    "\t\tct state != new accept\n",
                                    "\t\tct state vmap { established : accept, new : accept }\n",
                                    "\t\tmeta l4proto { icmp, tcp } accept\n",
                                    "\t\tjump x\n",
                                    "\t\tgoto x\n",
                                    "\t\txt match \"conntrack\" accept\n",
                                    "\t\tqueue to 1\n"})
        EXPECT_EQ(of_nft(rules, "drop", "\tchain x {\n\t\taccept\n\t}\n"), kNone) << rules;
    EXPECT_EQ(of_nft("\t\tip saddr 10.0.0.0/8 drop\n", "accept"), kNone);
    EXPECT_EQ(of_nft("", "drop", "\tflags dormant\n\n"), kNone);
}

TEST(RefusingNft, OnlyOfAFamilyThatPodsHaveAndOfOthers) {
    const auto of = [](const std::string &table) {
        return refusing_chains_of_nft(
            "table " + table + " {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\n",
            pods());
    };
    EXPECT_EQ(of("ip f"), Found{"chain f c (ip)"});
    for (const std::string table : {"ip6 f", "bridge f", "inet podlane-pods"})
        EXPECT_EQ(of(table), kNone) << table;
}

} // namespace
} // namespace podlane::ctl::forwarding
