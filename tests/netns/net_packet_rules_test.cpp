// SPDX-License-Identifier: MIT
// Rules that work by packet, as nft(8) and iptables-nft write them.
#include "loader/net/packet_rules.hpp"
#include "tests/harness/process.hpp"
#include "tests/netns/net_fixture.hpp"

#include <gmock/gmock.h>

namespace podlane::net::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
            all.push_back(to_string(one));
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

TEST_F(PacketRulesTest, OfIptablesAreFoundToo) {
    iptables("*mangle\n-A FORWARD -j TTL --ttl-set 9\nCOMMIT\n"
             "*filter\n:POLICE - [0:0]\n-A FORWARD -j POLICE\n-A POLICE -m limit --limit 5/sec -j ACCEPT\n"
             "-A POLICE -m hashlimit --hashlimit-above 5/sec --hashlimit-name x -j NFQUEUE --queue-bypass\nCOMMIT\n");
    EXPECT_THAT(found(), ElementsAre("chain mangle FORWARD (ip): TTL", "chain filter FORWARD (ip): limit, queue"));
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
