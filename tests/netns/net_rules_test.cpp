// SPDX-License-Identifier: MIT
// Elements of nf_tables sets over netlink, seen by nft(8).
// Rules that work by packet, as nft(8) and iptables-nft write them.
#include "loader/net/nftables.hpp"
#include "loader/net/packet_rules.hpp"
#include "loader/net/prefix_set.hpp"
#include "maps/text.hpp"
#include "tests/netns/net_fixture.hpp"

namespace podlane::net::test {
namespace {

std::string output_of(const std::string &command) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> out(popen((command + " 2>&1").c_str(), "r"), &pclose);
    std::string text;
    std::array<char, 512> chunk{};
    while (std::fgets(chunk.data(), chunk.size(), out.get()) != nullptr)
        text += chunk.data();
    return text;
}

class NetNftables : public NetTest {
  protected:
    void SetUp() override {
        ASSERT_EQ(output_of("nft 'add table inet t; add set inet t four { type ipv4_addr; };"
                            "add set inet t six { type ipv6_addr; }; add chain inet t c;"
                            "add rule inet t c ip saddr @four counter comment \"mark one\"; add rule inet t c accept'"),
                  "");
    }
    static std::string elements() { return output_of("nft list set inet t four; nft list set inet t six"); }

    Netlink netfilter_ = require(Netlink::open_netfilter());
    AddressSets sets_{"t", "four", "six"};
    std::vector<ip_addr> addresses_{require(parse_ip("192.0.2.1")), require(parse_ip("2001:db8::1")),
                                    require(parse_ip("192.0.2.2"))};
};

TEST_F(NetNftables, AddsElementsOfBothFamiliesAndAddsThemAgain) {
    EXPECT_TRUE(require(add_elements(netfilter_, sets_, addresses_)));
    EXPECT_TRUE(require(add_elements(netfilter_, sets_, addresses_)));

    EXPECT_THAT(elements(), AllOf(HasSubstr("192.0.2.1"), HasSubstr("192.0.2.2"), HasSubstr("2001:db8::1")));
}

TEST_F(NetNftables, RemovesElementsWhetherOrNotTheyAreThere) {
    require(add_elements(netfilter_, sets_, std::span(addresses_).first(2)));

    EXPECT_TRUE(require(remove_elements(netfilter_, sets_, addresses_)));

    EXPECT_THAT(elements(), AllOf(Not(HasSubstr("192.0.2")), Not(HasSubstr("2001:db8"))));
}

TEST_F(NetNftables, SaysIfATableOrASetIsMissingAndChangesNothing) {
    EXPECT_FALSE(require(add_elements(netfilter_, {"t", "four", "missing"}, addresses_)));
    EXPECT_FALSE(require(remove_elements(netfilter_, {"missing", "four", "six"}, addresses_)));

    EXPECT_THAT(elements(), Not(HasSubstr("192.0.2")));
}

TEST_F(NetNftables, AddsInterfacesToSetsAndRemovesTheChainThatUsesThem) {
    constexpr std::array sets = {"one", "two"};
    const std::string ifname = "cali012345*ab"; // which is no pattern
    ASSERT_EQ(output_of("nft 'add set inet t one { type ifname; }; add set inet t two { type ifname; };"
                        "add chain inet t d; add rule inet t d iifname @one oifname @two drop'"),
              "");
    EXPECT_FALSE(require(has_interface(netfilter_, "t", sets, ifname)));
    for (int i = 0; i < 2; ++i)
        EXPECT_TRUE(require(add_interface(netfilter_, "t", std::span(sets).first(1), ifname)));
    EXPECT_TRUE(require(has_interface(netfilter_, "t", std::span(sets).first(1), ifname)));
    EXPECT_FALSE(require(has_interface(netfilter_, "t", sets, ifname)));
    EXPECT_FALSE(require(has_interface(netfilter_, "t", std::span(sets).first(1), "cali012345")));
    EXPECT_THAT(output_of("nft list set inet t one"), HasSubstr("\"" + ifname + "\""));
    for (int i = 0; i < 2; ++i)
        EXPECT_TRUE(require(remove_interface(netfilter_, "t", sets, ifname)));
    EXPECT_FALSE(require(has_interface(netfilter_, "t", std::span(sets).first(1), ifname)));
    EXPECT_FALSE(require(remove_interface(netfilter_, "missing", sets, ifname)));

    require(add_interface(netfilter_, "t", sets, ifname));
    EXPECT_TRUE(require(remove_chain(netfilter_, "t", "d", sets)));
    EXPECT_FALSE(require(remove_chain(netfilter_, "t", "d", sets)));
    EXPECT_THAT(output_of("nft list table inet t"), AllOf(Not(HasSubstr("ifname")), HasSubstr("set four")));
}

TEST_F(NetNftables, ListsThePrefixesOfASetOfIntervals) {
    const auto listed = [&](const std::string &type, const std::string &elements) {
        EXPECT_EQ(output_of("nft 'add set inet t i { type " + type + "; flags interval; }" +
                            (elements.empty() ? "" : "; add element inet t i { " + elements + " }") + "'"),
                  "");
        const auto prefixes = require(list_prefixes(netfilter_, "t", "i"));
        EXPECT_EQ(output_of("nft delete set inet t i"), "");
        std::string text;
        for (const Prefix &one : prefixes.value_or(std::vector<Prefix>{}))
            text += to_string(one) + " ";
        return prefixes ? text : "none";
    };
    for (const std::string all : {"", "0.0.0.0/0 ", "0.0.0.0/1 128.0.0.0/1 ", "0.0.0.0/8 255.255.255.255/32 ",
                                  "10.0.0.0/25 10.0.0.128/25 10.0.1.0/24 192.0.2.7/32 ", "255.255.255.0/24 "})
        EXPECT_EQ(listed("ipv4_addr", join(split<std::string>(all, " "), ", ")), all);
    for (const std::string all : {"::/0 ", "2001:db8::/32 2001:db9::/32 fd00::1/128 ", "ffff::/16 "})
        EXPECT_EQ(listed("ipv6_addr", join(split<std::string>(all, " "), ", ")), all);
    for (const std::string other :
         {"192.0.2.7-192.0.2.9", "192.0.2.8-192.0.2.9, 0.0.0.0-10.0.0.0", "1.0.0.0-255.255.255.255"})
        EXPECT_EQ(listed("ipv4_addr", other), "none");
    EXPECT_THAT(require(list_prefixes(netfilter_, "t", "missing")), testing::Optional(IsEmpty()));
}

TEST_F(NetNftables, ListsTheAddressesOfASet) {
    require(add_elements(netfilter_, sets_, addresses_));
    EXPECT_THAT(require(list_set_addresses(netfilter_, "t", "four")),
                testing::UnorderedElementsAre(addresses_.at(0), addresses_.at(2)));
    EXPECT_THAT(require(list_set_addresses(netfilter_, "t", "six")), ElementsAre(addresses_.at(1)));
    EXPECT_THAT(require(list_set_addresses(netfilter_, "t", "missing")), IsEmpty());
    EXPECT_THAT(require(list_set_addresses(netfilter_, "missing", "six")), IsEmpty());
}

TEST_F(NetNftables, SaysHowAChainIsCalled) {
    const auto found = [&](const std::string &chain) { return require(find_base_chain(netfilter_, "t", chain)); };
    ASSERT_EQ(output_of("nft 'add chain inet t n { type nat hook postrouting priority 100; };"
                        "add chain inet t f { type filter hook forward priority 0; };"
                        "add chain inet t d { type filter hook forward priority -5; policy drop; }'"),
              "");
    EXPECT_EQ(found("n"), postrouting_nat());
    EXPECT_EQ(found("f"), forward_filter());
    BaseChain expected = forward_filter();
    expected.priority = -5;
    expected.policy = 0;
    EXPECT_EQ(found("d"), expected);
    EXPECT_EQ(found("c").value_or(expected).type, ""); // nothing calls it
    EXPECT_EQ(found("missing"), std::nullopt);
    EXPECT_EQ(require(find_base_chain(netfilter_, "missing", "n")), std::nullopt);
    ASSERT_EQ(output_of("nft 'add table inet t { flags dormant; }'"), "");
    EXPECT_NE(found("n"), postrouting_nat());
}

TEST_F(NetNftables, ReadsTheCommentsOfAChainsRules) {
    EXPECT_THAT(require(rule_comments(netfilter_, "t", "c")), ElementsAre("mark one", ""));
    EXPECT_THAT(require(rule_comments(netfilter_, "t", "missing")), IsEmpty());
    EXPECT_THAT(require(rule_comments(netfilter_, "missing", "c")), IsEmpty());
}

TEST_F(NetNftables, AddsUpTheCountersOfAChainsRules) {
    const auto counted = [&](const char *chain) { return require(counted_packets(netfilter_, "t", chain)); };
    ASSERT_EQ(output_of("nft 'add chain inet t d; add rule inet t d counter packets 3 bytes 1 drop;"
                        "add rule inet t d accept; add rule inet t d counter packets 5000000000 bytes 1 drop;"
                        "add chain inet t e; add rule inet t e accept'"),
              "");
    EXPECT_EQ(counted("d"), 5000000003U);
    EXPECT_EQ(counted("e"), std::nullopt);
    EXPECT_EQ(counted("missing"), std::nullopt);
}

TEST_F(NetNftables, TurnsConnectionTrackingOnByARuleThatNoPacketMeets) {
    EXPECT_FALSE(require(has_rules(netfilter_, "p", "conntrack")));
    require(add_tracking(netfilter_, "p", "conntrack"));
    require(add_tracking(netfilter_, "p", "conntrack")); // replaces it

    EXPECT_TRUE(require(has_rules(netfilter_, "p", "conntrack")));
    EXPECT_THAT(output_of("nft list table inet p"), AllOf(HasSubstr("ct state invalid\n\t}"), Not(HasSubstr("hook"))));

    EXPECT_TRUE(require(remove_chain(netfilter_, "p", "conntrack")));
    EXPECT_FALSE(require(remove_chain(netfilter_, "p", "conntrack")));
    EXPECT_FALSE(require(has_rules(netfilter_, "p", "conntrack")));
}

TEST_F(NetNftables, LoadsConnectionTrackingAndLeavesNoTable) {
    const std::string before = output_of("nft list ruleset");
    require(load_tracking(netfilter_));
    EXPECT_EQ(output_of("nft list ruleset"), before);
}

TEST_F(NetNftables, RemovesATableWithAllInIt) {
    require(add_elements(netfilter_, sets_, addresses_));

    EXPECT_TRUE(require(remove_table(netfilter_, "t")));
    EXPECT_FALSE(require(remove_table(netfilter_, "t")));

    EXPECT_EQ(output_of("nft list ruleset"), "");
}

class PacketRulesTest : public NetTest {
  protected:
    static void nft(const std::string &script) {
        ASSERT_EQ(podlane::test::run(require(Namespace::current()), {"nft", "-f", "-"}, script).rc, 0) << script;
    }
    static void iptables(const std::string &script) {
        ASSERT_EQ(podlane::test::run(require(Namespace::current()), {"iptables-nft-restore"}, script).rc, 0) << script;
    }
    std::vector<std::string> found() {
        std::vector<std::string> all;
        for (const PacketRules &one : require(packet_rules(netfilter_)))
            all.push_back(words_of(one));
        return all;
    }
    Netlink netfilter_ = require(Netlink::open_netfilter());
};

TEST_F(PacketRulesTest, AreFoundAtEveryHookOfForwardedPackets) {
    nft("table inet a {\n"
        " chain pre { type filter hook prerouting priority 0; ip dscp set 4; }\n"
        " chain forwarded { type filter hook forward priority 0; jump more; }\n"
        " chain more { quota over 5 mbytes drop\n limit rate 5/second log\n }\n"
        " chain post { type filter hook postrouting priority 0; ip ttl set 5; meta mark set 1; }\n"
        "}\n");
    EXPECT_THAT(found(),
                ElementsAre("chain a pre (inet): changed header", "chain a forwarded (inet): limit, log, quota",
                            "chain a post (inet): changed header, mark"));
}

TEST_F(PacketRulesTest, AreFoundInSetsAndBehindVerdictMapsAndAtDevices) {
    nft("table inet a {\n"
        " set seen { type ipv4_addr; flags dynamic; size 100; }\n"
        " map ways { type inet_service : verdict; elements = { 80 : jump behind }; }\n"
        " chain behind { quota over 5 mbytes drop; }\n"
        " chain pre { type filter hook prerouting priority 0; update @seen { ip saddr limit rate over 5/second } drop; "
        "}\n"
        " chain forwarded { type filter hook forward priority 0; tcp dport vmap @ways; }\n"
        " chain post { type filter hook postrouting priority 0; update @seen { ip saddr }; ct bytes > 1000000 drop; }\n"
        "}\n"
        "table netdev n {\n"
        " chain in { type filter hook ingress device lo priority 0; limit rate over 5/second drop; }\n"
        "}\n");
    EXPECT_THAT(found(),
                ElementsAre("chain a pre (inet): limit", "chain a forwarded (inet): quota",
                            "chain a post (inet): connection's counter, dynamic set", "chain n in (netdev): limit"));
}

TEST_F(PacketRulesTest, OfIptablesAreFoundToo) {
    iptables("*mangle\n-A FORWARD -j TTL --ttl-set 9\nCOMMIT\n"
             "*filter\n:POLICE - [0:0]\n-A FORWARD -j POLICE\n-A POLICE -m limit --limit 5/sec -j ACCEPT\n"
             "-A POLICE -m hashlimit --hashlimit-above 5/sec --hashlimit-name x -j NFQUEUE --queue-bypass\nCOMMIT\n");
    EXPECT_THAT(found(), ElementsAre("chain mangle FORWARD (ip): TTL", "chain filter FORWARD (ip): limit, queue"));
}

TEST_F(PacketRulesTest, ThatReadWhatDiffersByPacketAreFound) {
    for (const auto &[rule, word] : std::initializer_list<std::pair<std::string, std::string>>{
             {"meta hour \"10:00\"-\"12:00\" drop", "time"},
             {"meta day Monday drop", "time"},
             {"meta length > 1400 drop", "length"},
             {"meta cpu 0 accept", "cpu"},
             {"meta priority set root", "priority"},
             {"ip length 40 drop", "length"},
             {"ip6 length { 40, 80 } drop", "length"},
             {"udp length 1400-1500 drop", "length"},
             {"ip ttl < 5 drop", "TTL"},
             {"ip6 hoplimit vmap { 1 : drop, 2 : drop }", "TTL"},
             {"ip ttl . ip saddr { 5 . 192.0.2.1 } drop", "TTL"},
             {"ip dscp ef accept", "DSCP"},
             {"ip6 dscp ef accept", "DSCP"},
             {"ip id 5 drop", "header"},
             {"tcp window < 100 drop", "header"},
             {"@th,160,32 0x1 drop", "payload"},
             {"ct expiration > 5s drop", "expiration"},
             {"ct state ! new limit rate 5/second drop", "limit"},
             {"tcp flags psh drop", "TCP flags"},
             {"tcp option timestamp exists drop", "TCP option"},
             {"reset tcp option timestamp", "changed header"},
             {"ip saddr @s accept", "counter"},
             {"ip saddr vmap @m", "counter, limit"},
             {"tcp flags & (syn | ack) == ack accept", "TCP flags"},
             {"tcp flags != syn drop", "TCP flags"},
             {"tcp flags & (fin | syn | rst) == 0 drop", "TCP flags"},
             {"tcp flags & (syn | psh) != 0 drop", "TCP flags"},
             {"udp dport 53 limit rate 5/second accept", "limit"}}) {
        SCOPED_TRACE(rule);
        nft("table inet a { set s { type ipv4_addr; counter; }\n"
            " map m { type ipv4_addr : verdict; limit rate 5/second counter; }\n"
            " chain c { type filter hook forward priority 0; " +
            rule + ";\n}\n}\n");
        EXPECT_THAT(found(), ElementsAre("chain a c (inet): " + word));
        nft("delete table inet a\n");
    }
    nft("table netdev n { chain in { type filter hook ingress device lo priority 0; ip ttl < 5 drop; }\n}\n");
    EXPECT_THAT(found(), ElementsAre("chain n in (netdev): TTL"));
}

TEST_F(PacketRulesTest, OfIptablesThatReadWhatDiffersByPacketAreFound) {
    for (const auto &[rule, word] : std::initializer_list<std::pair<std::string, std::string>>{
             {"-m conntrack --ctexpire 5 -j DROP", "expiration"},
             {"-p tcp --tcp-flags PSH PSH -j DROP", "TCP flags"},
             {"-p tcp --tcp-option 5 -j DROP", "TCP option"},
             {"-p tcp --tcp-option 5 --tcp-flags ACK ACK -j DROP", "TCP flags, TCP option"},
             {"-p tcp --tcp-option 5 ! --tcp-flags SYN SYN -j DROP", "TCP flags, TCP option"},
             {"-p tcp ! --syn -j DROP", "TCP flags"},
             {"-m ttl --ttl-lt 5 -j DROP", "TTL"},
             {"-m dscp --dscp 4 -j ACCEPT", "DSCP"},
             {"-m tos --tos 4 -j ACCEPT", "DSCP"},
             {"-p tcp -m ecn --ecn-ip-ect 1 -j ACCEPT", "DSCP"},
             {"-m cpu --cpu 0 -j ACCEPT", "cpu"},
             {"-j IDLETIMER --timeout 5 --label podlane-test", "timer"},
             {"-j AUDIT --type accept", "log"}}) {
        SCOPED_TRACE(rule);
        iptables("*filter\n-A FORWARD " + rule + "\nCOMMIT\n");
        EXPECT_THAT(found(), ElementsAre("chain filter FORWARD (ip): " + word));
    }
}

// Addresses, ports and protocols are the same in all packets; ICMP, fragments and packets that open or close a
// connection take the slow path.
TEST_F(PacketRulesTest, ThatReadWhatEachPacketHasDoNotCount) {
    for (const std::string rule : {"meta nftrace set 1",
                                   "ip saddr 192.0.2.1 ip daddr 192.0.2.2 drop",
                                   "ip6 saddr fd00::/8 drop",
                                   "ip6 saddr 2001:db8::1 ip6 daddr 2001:db8::2 drop",
                                   "ip saddr . tcp dport { 192.0.2.1 . 80 } drop",
                                   "ip protocol udp drop",
                                   "ip6 nexthdr tcp drop",
                                   "tcp sport 80 tcp dport 81 drop",
                                   "udp dport { 53, 54 } drop",
                                   "ether type ip6 ip6 saddr fd00::/8 drop",
                                   "ether saddr 02:00:00:00:00:01 drop",
                                   "meta mark 0x1 drop",
                                   "ip frag-off & 0x1fff != 0 drop",
                                   "ct state vmap { established : accept, related : accept, invalid : drop }",
                                   "icmp type echo-request limit rate 5/second accept",
                                   "icmp id 5 drop",
                                   "icmpv6 type nd-neighbor-solicit accept",
                                   "ip protocol icmp limit rate 5/second accept",
                                   "ip6 nexthdr icmpv6 counter",
                                   "meta l4proto sctp log",
                                   "tcp flags syn limit rate 5/second accept",
                                   "tcp flags & (fin | syn | rst | ack) == syn counter",
                                   "tcp flags & (fin | syn) == fin | syn drop",
                                   "tcp flags rst counter",
                                   "tcp option maxseg size set 1000",
                                   "ct state == new log"}) {
        nft("table inet a { chain c { type filter hook forward priority 0; " + rule + ";\n}\n}\n");
        EXPECT_THAT(found(), IsEmpty()) << rule;
        nft("delete table inet a\n");
    }
    nft("table netdev n { chain in { type filter hook ingress device lo priority 0; ip6 saddr fd00::/8 drop\n"
        " meta protocol arp limit rate 5/second accept; }\n}\n");
    iptables("*filter\n-A FORWARD -p tcp --syn -m limit --limit 5/sec -j ACCEPT\n"
             "-A FORWARD -p tcp --tcp-option 5 --tcp-flags SYN SYN -m limit --limit 5/sec -j ACCEPT\n"
             "-A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT\n-A FORWARD -f -j DROP\n-A FORWARD -p icmp -j LOG\n"
             "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -j TRACE\nCOMMIT\n");
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(PacketRulesTest, ThatOnlyFirstPacketsMeetDoNotCount) {
    nft("table inet a {\n"
        " chain forwarded { type filter hook forward priority 0; ct state new limit rate 5/second accept\n ct state "
        "invalid "
        "log "
        "drop\n ip saddr 192.0.2.1 drop; tcp option maxseg size set 1300; }\n"
        " chain in { type filter hook input priority 0; limit rate 5/second accept; }\n"
        " chain nat { type nat hook prerouting priority 0; counter; }\n"
        "}\n"
        "table inet podlane-pods { chain c { type filter hook forward priority 0; counter; }\n}\n");
    iptables("*filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\n-A KUBE-FORWARD -m limit --limit 5/sec -j "
             "ACCEPT\n-A FORWARD -s 192.0.2.1 -j DROP\n"
             "-A FORWARD -m conntrack --ctstate NEW -m limit --limit 5/sec -j ACCEPT\nCOMMIT\n");
    EXPECT_THAT(found(), IsEmpty());
}

TEST_F(PacketRulesTest, OfEstablishedConnectionsCount) {
    nft("table inet a { chain forwarded { type filter hook forward priority 0; ct state established,new counter; "
        "}\n}\n");
    EXPECT_THAT(found(), ElementsAre("chain a forwarded (inet): counter"));
}

} // namespace
} // namespace podlane::net::test
