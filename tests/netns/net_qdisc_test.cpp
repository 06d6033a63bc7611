// SPDX-License-Identifier: MIT
// The qdiscs of a host-side veth: fq, htb and the shaper are put, changed and removed, and
// foreign ones are left alone.
#include "loader/net/qdisc.hpp"
#include "loader/net/shaper.hpp"
#include "net_fixture.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace podlane::net::test {
namespace {

constexpr std::uint32_t kHandle = 0x504c0000;
constexpr std::uint32_t kPackets = 1000;

class NetQdisc : public NetTest {
  protected:
    std::string root_qdisc() { return require(find_link(node_, ifindex_))->qdisc; }
    static void tc(const std::string &arguments) { ASSERT_EQ(std::system(("tc qdisc " + arguments).c_str()), 0); }
    static std::string shown(const std::string &what) {
        const std::unique_ptr<FILE, int (*)(FILE *)> pipe(popen(("tc " + what + " show dev cali0").c_str(), "r"),
                                                          &pclose);
        std::string text(4096, '\0');
        text.resize(pipe ? fread(text.data(), 1, text.size(), pipe.get()) : 0);
        return text;
    }

    std::uint32_t ifindex_ = veth_up().host.ifindex;
    FqSpec fq_{ifindex_, kHandle, kPackets};
};

TEST_F(NetQdisc, NamesTheQdiscOfIncomingPackets) {
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), "");
    tc("add dev cali0 clsact");
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), "clsact");
    tc("del dev cali0 clsact");
    tc("add dev cali0 ingress");
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), kIngressQdisc);
    EXPECT_EQ(require(ingress_qdisc(node_, 4242)), "") << "of a link that is missing";
}

TEST_F(NetQdisc, AddsChangesAndRemovesItsOwnFqOnly) {
    if (!require(has_fq(node_))) {
        EXPECT_FALSE(require(set_fq(node_, fq_)));
        GTEST_SKIP() << "this kernel has no fq";
    }
    EXPECT_TRUE(require(set_fq(node_, fq_)));
    EXPECT_TRUE(require(set_fq(node_, fq_))) << "once more";
    EXPECT_EQ(root_qdisc(), "fq");
    EXPECT_TRUE(require(has_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_TRUE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_FALSE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_EQ(root_qdisc(), "noqueue");

    EXPECT_FALSE(require(has_root_qdisc(node_, ifindex_, kHandle)));
    tc("add dev cali0 root handle 7: pfifo");
    EXPECT_FALSE(require(has_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_FALSE(require(set_fq(node_, fq_)));
    EXPECT_FALSE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_EQ(root_qdisc(), "pfifo");
}

TEST_F(NetQdisc, AddsAndChangesItsOwnShaperOnly) {
    ShaperSpec shaper{ifindex_, kHandle, 1250000, 20000000};
    EXPECT_FALSE(require(change_shaper(node_, shaper))) << "there is none";
    if (!require(has_htb(node_)) || !require(set_shaper(node_, shaper)))
        GTEST_SKIP() << "this kernel has no htb or no cls_bpf";
    EXPECT_TRUE(require(set_shaper(node_, shaper))) << "once more";
    EXPECT_NE(shown("class").find("504c:10 root rate 10Mbit ceil 10Mbit"), std::string::npos) << shown("class");
    EXPECT_NE(shown("class").find("504c:2f parent 504c:12"), std::string::npos) << shown("class");
    for (const std::uint64_t bytes_per_s : {std::uint64_t{1}, UINT64_MAX / 8, std::uint64_t{12500000000}}) {
        shaper.bytes_per_s = bytes_per_s;
        EXPECT_TRUE(require(change_shaper(node_, shaper))) << bytes_per_s;
    }
    EXPECT_NE(shown("class").find("504c:10 root rate 100Gbit ceil 100Gbit"), std::string::npos) << shown("class");
    EXPECT_TRUE(require(remove_root_qdisc(node_, ifindex_, kHandle)));

    for (const char *foreign : {"pfifo", "htb"}) {
        tc("add dev cali0 root handle 7: " + std::string(foreign));
        EXPECT_FALSE(require(set_shaper(node_, shaper)));
        EXPECT_FALSE(require(change_shaper(node_, shaper)));
        EXPECT_EQ(root_qdisc(), foreign);
        EXPECT_EQ(shown("class"), "");
        tc("del dev cali0 root");
    }
}

TEST_F(NetQdisc, AddsChangesAndRemovesItsOwnHtbOnly) {
    HtbSpec htb{ifindex_, kHandle, kHandle | 0x10U, 1250000, 20000000, 250000};
    if (!require(has_htb(node_))) {
        EXPECT_FALSE(require(set_htb(node_, htb)));
        GTEST_SKIP() << "this kernel has no htb";
    }
    EXPECT_TRUE(require(set_htb(node_, htb)));
    EXPECT_EQ(root_qdisc(), "htb");
    EXPECT_NE(shown("class").find("rate 10Mbit ceil 10Mbit"), std::string::npos) << shown("class");
    EXPECT_NE(shown("qdisc").find("limit 250000b"), std::string::npos) << shown("qdisc");
    for (const std::uint64_t bytes_per_s :
         {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX / 8, std::uint64_t{12500000000}}) {
        htb.bytes_per_s = bytes_per_s;
        htb.most_bytes = htb.burst_ns = bytes_per_s;
        EXPECT_TRUE(require(set_htb(node_, htb))) << bytes_per_s;
        EXPECT_EQ(require(htb_class_rate(node_, ifindex_, htb.class_id)), std::max(bytes_per_s, std::uint64_t{1}));
    }
    EXPECT_EQ(require(htb_class_rate(node_, ifindex_, kHandle | 0x11U)), std::nullopt);
    EXPECT_EQ(require(htb_class_rate(node_, 999999, htb.class_id)), std::nullopt);
    EXPECT_NE(shown("class").find("rate 100Gbit ceil 100Gbit"), std::string::npos) << shown("class");
    EXPECT_TRUE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_EQ(root_qdisc(), "noqueue");

    for (const char *foreign : {"pfifo", "htb"}) {
        tc("add dev cali0 root handle 7: " + std::string(foreign));
        EXPECT_FALSE(require(set_htb(node_, htb)));
        EXPECT_EQ(require(htb_class_rate(node_, ifindex_, htb.class_id)), std::nullopt);
        EXPECT_FALSE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
        EXPECT_EQ(root_qdisc(), foreign);
        EXPECT_EQ(shown("class"), "");
        tc("del dev cali0 root");
    }
}

} // namespace
} // namespace podlane::net::test
