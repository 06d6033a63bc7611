// SPDX-License-Identifier: MIT
// podlanectl doctor reads the node's rules by whichever program is installed, under whichever name, and each rule once;
// without any it says so.
#include "tests/netns/doctor.hpp"
#include "tests/netns/doctor_networks.hpp"

namespace podlane::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DoctorRulesTest : public Doctor {
  protected:
    DoctorRulesTest() { fs::create_directory(sbin_); }
    // podlanectl gets a /usr/sbin of its own with these; "iptables-legacy-save as iptables-save": of both families.
    void install(const std::vector<std::string> &programs) {
        for (const std::string &one : programs) {
            const auto names = words(one);
            for (const std::string family : {"", "6"}) {
                const auto of_family = [&](std::string name) {
                    const std::size_t ip = name.find("ip");
                    return family.empty() || ip == std::string::npos ? name : name.insert(ip + 2, family);
                };
                fs::copy_file(fs::canonical("/usr/sbin/" + of_family(names.front())),
                              sbin_ + "/" + of_family(names.back()), fs::copy_options::overwrite_existing);
            }
        }
        setup_ += "mount --bind " + sbin_ + " /usr/sbin && ";
    }
    [[nodiscard]] std::vector<std::string> found(const std::string &check) {
        std::vector<std::string> all;
        for (const Json &one : findings())
            if (one.at("check") == check)
                all.push_back(one.at("finding"));
        return all;
    }
    const std::string sbin_ = node_.dir() + "/sbin";
};

const std::string kNoNft = "cannot be checked: nft is not installed";
const std::string kNothing = kNoNft + ", nor is iptables: nothing here prints the node's rules";
const std::string kOlder = "chain filter FORWARD (iptables) drops or rejects forwarded packets";
const std::string kOlder6 = "chain filter FORWARD (ip6tables) drops or rejects forwarded packets";

struct Installed {
    const char *name; // of the test
    std::vector<std::string> programs;
    const char *rules_by;
    std::vector<std::string> says;
};

void PrintTo(const Installed &installed, std::ostream *out) { *out << installed.name; }

class DoctorInstalled : public DoctorRulesTest, public testing::WithParamInterface<Installed> {};

TEST_P(DoctorInstalled, ReadsEachRuleOnce) {
    for (const std::string family : {"iptables", "ip6tables"})
        on_node(family + "-" + GetParam().rules_by + " -w -P FORWARD DROP");
    install(GetParam().programs);
    EXPECT_EQ(found("forward-rules"), GetParam().says);
    EXPECT_EQ(rc_, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Of, DoctorInstalled,
    testing::ValuesIn(std::vector<Installed>{
        {"OlderAlone", {"iptables-legacy-save as iptables-save"}, "legacy", {kOlder, kOlder6, kNoNft}},
        {"OlderBesideNft", {"nft", "iptables-legacy-save as iptables-save"}, "legacy", {kOlder, kOlder6}},
        {"OlderByTwoNames",
         {"nft", "iptables-legacy-save", "iptables-legacy-save as iptables-save"},
         "legacy",
         {kOlder, kOlder6}},
        {"OlderBesideTheNewer",
         {"nft", "iptables-legacy-save", "iptables-nft-save as iptables-save"},
         "legacy",
         {kOlder, kOlder6}},
        {"NewerAlone", {"iptables-nft-save as iptables-save"}, "nft", {kOlder, kOlder6, kNoNft}},
        {"NewerByTwoNames",
         {"iptables-nft-save", "iptables-nft-save as iptables-save"},
         "nft",
         {kOlder, kOlder6, kNoNft}},
        {"NewerBesideTheOlder",
         {"iptables-nft-save", "iptables-legacy-save as iptables-save"},
         "nft",
         {kOlder, kOlder6, kNoNft}},
        {"NewerBesideNft",
         {"nft", "iptables-nft-save", "iptables-nft-save as iptables-save"},
         "nft",
         {"chain filter FORWARD (ip) drops or rejects forwarded packets",
          "chain filter FORWARD (ip6) drops or rejects forwarded packets"}},
    }),
    [](const auto &info) { return std::string(info.param.name); });

// One that fails is installed: there may be rules.
TEST_F(DoctorRulesTest, AProgramThatFailsIsNotMissing) {
    for (const char *name : {"/iptables-save", "/ip6tables-save"}) {
        std::ofstream(sbin_ + name) << "#!/bin/sh\necho no version today >&2\nexit 1\n";
        fs::permissions(sbin_ + name, fs::perms::owner_all);
    }
    install({});
    EXPECT_THAT(found("forward-rules"), ElementsAre("cannot be checked: /usr/sbin/iptables-save: no version today"));
}

// As the plugin finds it: on NixOS no program is in /usr/sbin.
TEST_F(DoctorRulesTest, ProgramsAreFoundByThePath) {
    node_.run("nft add table inet strict");
    node_.run("nft add chain inet strict forward { type filter hook forward priority 0; policy drop; }");
    install({});
    const std::string elsewhere = node_.dir() + "/elsewhere";
    fs::create_directory(elsewhere);
    fs::copy_file(fs::canonical("/usr/sbin/nft"), elsewhere + "/nft");
    setup_ += "PATH=" + elsewhere + ":$PATH && ";
    EXPECT_THAT(found("forward-rules"), ElementsAre(HasSubstr("chain strict forward (inet) drops or rejects")));
}

// Translation is read by the same programs.
TEST_F(DoctorRulesTest, RulesOfNatAreReadWithoutNft) {
    configure(*this, {{"clusterCIDRs", {"198.18.0.0/15"}}});
    install({"iptables-nft-save as iptables-save"});
    EXPECT_THAT(found("no-masquerade"), ElementsAre(HasSubstr("is neither masqueraded nor announced")));
    EXPECT_THAT(found("service-range"), IsEmpty());
    on_node("iptables-nft -w -t nat -A POSTROUTING -s 198.18.64.0/18 -j MASQUERADE");
    on_node("iptables-nft -w -t nat -N KUBE-SERVICES");
    on_node("iptables-nft -w -t nat -A KUBE-SERVICES -d 198.19.0.1/32 -j ACCEPT");
    EXPECT_THAT(found("no-masquerade"), IsEmpty());
    EXPECT_THAT(found("service-range"), ElementsAre(HasSubstr("contains the ClusterIP 198.19.0.1")));
}

// Also of pods that are masqueraded: the kernel holds their rules, and is read without a program.
TEST_F(DoctorRulesTest, WithoutAnyProgramItSaysSo) {
    configure(*this, {{"clusterCIDRs", {"198.18.0.0/15"}}});
    const Pod &masqueraded = keep({{"ipMasq", true}});
    install({});
    for (const std::string check : {"forward-rules", "no-masquerade", "service-range"})
        EXPECT_THAT(found(check), ElementsAre(kNothing)) << check;
    configure(*this, {{"ipMasq", true}});
    EXPECT_THAT(found("no-masquerade"), ElementsAre(HasSubstr("needs nft or iptables, and PATH has neither")));
    EXPECT_EQ(rc_, 0);
    node_.run("nft delete element inet podlane-pods pods4 {" + masqueraded.text4() + "}");
    EXPECT_THAT(found("plan"), ElementsAre(HasSubstr("that masquerade")));
    EXPECT_EQ(rc_, 1);
}

} // namespace
} // namespace podlane::test
