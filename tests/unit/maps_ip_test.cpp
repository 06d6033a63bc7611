// SPDX-License-Identifier: MIT
// Words for addresses: what is read, what is refused, what is printed, and where prefixes end.
#include "maps/ip.hpp"
#include "tests/harness/test.hpp"

namespace podlane {
namespace {

using namespace std::string_view_literals;

ip_addr ip(std::string_view text) { return parse_ip(text).value(); }
Prefix prefix(std::string_view text) { return parse_prefix(text).value(); }
Mac mac(std::string_view text) { return parse_mac(text).value(); }

TEST(Ip, IsReadAndPrintedInItsShortestForm) {
    for (const auto &[text, printed] : std::vector<std::pair<std::string, std::string>>{
             {"0.0.0.0", "0.0.0.0"},
             {"192.0.2.1", "192.0.2.1"},
             {"255.255.255.255", "255.255.255.255"},
             {"::", "::"},
             {"::1", "::1"},
             {"2001:DB8:0:0:0:0:0:1", "2001:db8::1"},
             {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
             {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}}) {
        ASSERT_TRUE(parse_ip(text)) << text;
        EXPECT_EQ(to_string(ip(text)), printed);
        EXPECT_EQ(ip(printed), ip(text));
    }
}

template <typename T> void expect_refused(const Result<T> &read, std::string_view text, const std::string &what) {
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::invalid_network_config);
    EXPECT_EQ(read.error().message, "\"" + std::string(text) + "\" is not " + what);
}

TEST(Ip, AnythingElseIsRefusedAndNamed) {
    for (const std::string_view text :
         {""sv, " 192.0.2.1"sv, "192.0.2.1 "sv, "192.0.2"sv, "192.0.2.256"sv, "192.0.2.01"sv, "192.0.2.1.1"sv,
          "-1.0.2.1"sv, "3221225985"sv, "0xc0000201"sv, "192.0.2.1/24"sv, "192.0.2.1\0"sv, "\0"sv, "localhost"sv})
        expect_refused(parse_ip(text), text, "an IP address");
    for (const std::string_view text :
         {":"sv, ":::"sv, "2001:db8::1::2"sv, "2001:db8:1"sv, "12345::"sv, "1:2:3:4:5:6:7:8:9"sv, "g::"sv, "[::1]"sv,
          "fe80::1%eth0"sv, "::ffff:192.0.2.256"sv})
        expect_refused(parse_ip(text), text, "an IP address");
}

template <typename T>
void expect_way_out(const Result<T> &read, std::string_view text, const std::string &what, const std::string &ipv4) {
    expect_refused(read, text, what);
    EXPECT_EQ(read.error().hint, "write the IPv4 address, " + ipv4 + ": IPv4 and IPv6 are never mixed");
}

TEST(Ip, AnIpv4AddressInTheFormOfIpv6IsRefusedInEverySpelling) {
    for (const std::string_view text :
         {"::ffff:192.0.2.1"sv, "::FFFF:192.0.2.1"sv, "::ffff:c000:201"sv, "0:0:0:0:0:ffff:c000:0201"sv})
        expect_way_out(parse_ip(text), text, "an IP address", "192.0.2.1");
    expect_way_out(parse_ip("::ffff:0:0"), "::ffff:0:0", "an IP address", "0.0.0.0");
    for (const char *text : {"::192.0.2.1", "::fffe:192.0.2.1", "::1:ffff:c000:201", "64:ff9b::192.0.2.1"})
        EXPECT_FALSE(is_ipv4(ip(text))) << text;
    EXPECT_EQ(parse_ip("192.0.2.256").error().hint, "");
}

TEST(Ip, KnowsItsFamily) {
    EXPECT_TRUE(is_ipv4(ip("0.0.0.0")));
    EXPECT_FALSE(is_ipv4(ip("::")));
    EXPECT_FALSE(is_ipv4(ip("::192.0.2.1")));
    EXPECT_FALSE(is_ipv4(ip("::1:ffff:192.0.2.1")));
    EXPECT_EQ(ipv4_from_host_order(0xc0000201U), ip("192.0.2.1"));
    EXPECT_TRUE(is_none(ip("::")));
    EXPECT_FALSE(is_none(ip("0.0.0.0"))) << "an address of IPv4";
    EXPECT_FALSE(is_none(ip("::1")));
}

TEST(Ip, IsLinkLocalFromTheFirstToTheLast) {
    for (const char *text : {"169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"})
        EXPECT_TRUE(is_link_local(ip(text))) << text;
    for (const char *text : {"169.253.255.255", "169.255.0.0", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                             "fec0::", "::", "0.0.0.0", "::a9fe:1"})
        EXPECT_FALSE(is_link_local(ip(text))) << text;
}

TEST(Ip, LinkLocalIsMadeOfAMac) {
    for (const auto &[of, addr] :
         {std::pair{"34:56:78:9a:bc:de", "fe80::3656:78ff:fe9a:bcde"}, // RFC 4291, appendix A
          std::pair{"ee:ee:ee:ee:ee:ee", "fe80::ecee:eeff:feee:eeee"},
          std::pair{"02:00:00:00:00:01", "fe80::ff:fe00:1"}, std::pair{"00:00:00:00:00:00", "fe80::200:ff:fe00:0"}})
        EXPECT_EQ(to_string(link_local_from_mac(mac(of))), addr);
}

TEST(Prefix, IsReadWithItsHostBitsAndPrinted) {
    for (const auto &[text, length] : std::vector<std::pair<std::string, int>>{{"192.0.2.1/0", 0},
                                                                               {"192.0.2.1/24", 24},
                                                                               {"192.0.2.1/32", 32},
                                                                               {"2001:db8::1/0", 0},
                                                                               {"2001:db8::1/33", 33},
                                                                               {"2001:db8::1/128", 128}}) {
        EXPECT_EQ(prefix(text).length, length) << text;
        EXPECT_EQ(prefix(text).addr, ip(text.substr(0, text.find('/'))));
        EXPECT_EQ(to_string(prefix(text)), text);
    }
    EXPECT_EQ(to_string(prefix("192.0.2.1")), "192.0.2.1/32");
    EXPECT_EQ(to_string(prefix("2001:db8::1")), "2001:db8::1/128");
}

TEST(Prefix, AnythingElseIsRefusedAndNamed) {
    for (const std::string_view text :
         {""sv, "/"sv, "/24"sv, "192.0.2.0/"sv, "192.0.2.0/33"sv, "192.0.2.0/-1"sv, "192.0.2.0/+8"sv, "192.0.2.0/ 8"sv,
          "192.0.2.0/8 "sv, "192.0.2.0/8/8"sv, "192.0.2.0/0x8"sv, "192.0.2.0/255.0.0.0"sv, "192.0.2.0/4294967304"sv,
          "192.0.2.0/256"sv, "2001:db8::/129"sv, "2001:db8::%1/64"sv, "192.0.2/24"sv})
        expect_refused(parse_prefix(text), text, "an address prefix");
}

// Whatever its length is: as one of IPv4, as one of IPv6, and without one.
TEST(Prefix, OneOfIpv4InTheFormOfIpv6IsRefused) {
    for (const std::string_view text :
         {"::ffff:10.0.0.0"sv, "::ffff:10.0.0.0/0"sv, "::ffff:10.0.0.0/8"sv, "::ffff:10.0.0.0/32"sv,
          "::ffff:10.0.0.0/33"sv, "::ffff:10.0.0.0/104"sv, "::ffff:10.0.0.0/128"sv, "::ffff:a00:0/8"sv})
        expect_way_out(parse_prefix(text), text, "an address prefix", "10.0.0.0");
    expect_way_out(parse_prefix("::ffff:0:0/0"), "::ffff:0:0/0", "an address prefix", "0.0.0.0");
    EXPECT_EQ(to_string(prefix("::/0")), "::/0");
}

TEST(Prefix, HostBitsAreClearedToTheBit) {
    for (const auto &[text, wanted] :
         std::vector<std::pair<std::string, std::string>>{{"255.255.255.255/0", "0.0.0.0/0"},
                                                          {"255.255.255.255/1", "128.0.0.0/1"},
                                                          {"255.255.255.255/7", "254.0.0.0/7"},
                                                          {"255.255.255.255/8", "255.0.0.0/8"},
                                                          {"255.255.255.255/9", "255.128.0.0/9"},
                                                          {"255.255.255.255/31", "255.255.255.254/31"},
                                                          {"255.255.255.255/32", "255.255.255.255/32"},
                                                          {"ffff:ffff::1/0", "::/0"},
                                                          {"ffff:ffff::1/1", "8000::/1"},
                                                          {"2001:dbf:ffff::1/29", "2001:db8::/29"},
                                                          {"2001:db8::ffff/127", "2001:db8::fffe/127"},
                                                          {"2001:db8::ffff/128", "2001:db8::ffff/128"}})
        EXPECT_EQ(to_string(masked(prefix(text))), wanted) << text;
}

TEST(Prefix, ContainsItsOwnFromTheFirstToTheLast) {
    struct Case {
        std::string of;
        std::vector<std::string> in, out;
    };
    for (const Case &one : std::vector<Case>{
             {"198.18.4.0/22", {"198.18.4.0", "198.18.7.255"}, {"198.18.3.255", "198.18.8.0", "::c612:400"}},
             {"198.18.9.7/24", {"198.18.9.0", "198.18.9.255"}, {"198.18.8.255", "198.18.10.0"}},
             {"0.0.0.0/0", {"0.0.0.0", "255.255.255.255"}, {"::", "2001:db8::1"}},
             {"192.0.2.1/32", {"192.0.2.1"}, {"192.0.2.0", "192.0.2.2"}},
             {"2001:db8::/63",
              {"2001:db8::", "2001:db8:0:1:ffff:ffff:ffff:ffff"},
              {"2001:db8:0:2::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"}},
             {"::/0", {"::", "2001:db8::1"}, {"0.0.0.0", "192.0.2.1"}},
             {"::/64", {"::1"}, {"192.0.2.1"}}}) {
        for (const std::string &addr : one.in)
            EXPECT_TRUE(contains(prefix(one.of), ip(addr))) << addr << " in " << one.of;
        for (const std::string &addr : one.out)
            EXPECT_FALSE(contains(prefix(one.of), ip(addr))) << addr << " in " << one.of;
    }
}

TEST(Prefix, ContainsPrefixesThatAreNoShorter) {
    const Prefix wide = prefix("198.18.4.0/22");
    for (const char *inside : {"198.18.4.0/22", "198.18.4.0/23", "198.18.7.255/32"})
        EXPECT_TRUE(contains(wide, prefix(inside))) << inside;
    for (const char *outside : {"198.18.4.0/21", "0.0.0.0/0", "198.18.8.0/23"})
        EXPECT_FALSE(contains(wide, prefix(outside))) << outside;
}

TEST(MacText, IsReadInEitherCaseAndPrintedInTheLower) {
    EXPECT_EQ(mac("02:00:5E:00:ab:FF"), (Mac{0x02, 0, 0x5e, 0, 0xab, 0xff}));
    EXPECT_EQ(to_string(mac("02:00:5E:00:ab:FF")), "02:00:5e:00:ab:ff");
    EXPECT_EQ(to_string(Mac{}), "00:00:00:00:00:00");
}

TEST(MacText, AnythingElseIsRefusedAndNamed) {
    for (const std::string_view text :
         {""sv, "02:00:5e:00:00"sv, "02:00:5e:00:00:1"sv, "02:00:5e:00:00:011"sv, "02:00:5e:00:00:01:"sv,
          "02-00-5e-00-00-01"sv, "02:00:5e:00:00:0g"sv, "0x:00:5e:00:00:01"sv, "-2:00:5e:00:00:01"sv,
          " 2:00:5e:00:00:01"sv, "2 :00:5e:00:00:01"sv, "02:00:5e:00:0001:"sv, "02005e000001"sv,
          "02:00:5e:00:00:0\0"sv})
        expect_refused(parse_mac(text), text, "a MAC address");
}

} // namespace
} // namespace podlane
