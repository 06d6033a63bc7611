// SPDX-License-Identifier: MIT
// A power cut at any system call of ADD, DEL and GC: everything but the disk is gone. After the boot the runtime's DELs
// and a GC leave no lease, file or rule.
//
// PODLANE_POWER_CUTS=N cuts N times in each verb and mode, rather than twice.
#include "loader/own_addresses.hpp"
#include "tests/netns/fault.hpp"

#include <net/if.h>
#include <sys/mount.h>

namespace podlane::test {
namespace {

class PowerCutTest : public FaultTest {
  protected:
    PowerCutTest() {
        must("GC");
        kept_ = node_.state() + node_.run("nft list ruleset");
        boot_ = node_.dir() + "/boot_id";
        begin_boot();
        if (mount(boot_.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) != 0)
            throw std::runtime_error("mounting over boot_id");
    }
    ~PowerCutTest() override { umount2("/proc/sys/kernel/random/boot_id", MNT_DETACH); }

    void begin_boot() { std::ofstream(boot_) << "00000000-0000-4000-8000-" << 100000000000 + ++boots_ << "\n"; }
    // Namespaces with their interfaces, programs, maps and rules. Interfaces of the machine come back as they were.
    void cut_power(const std::vector<std::shared_ptr<Container>> &containers) {
        for (const auto &container : containers)
            container->remove_namespace();
        const auto is_veth = [](const Json &link) { return link.at("ifname").get<std::string>().starts_with("cali"); };
        ASSERT_TRUE(wait_until([&] { return std::ranges::none_of(ip_json(node_.ns(), "link"), is_veth); }));
        fs::remove_all(node_.bpffs());
        node_.run("nft flush ruleset");
        const auto inside = require(net::enter(node_.ns()));
        for (const Hook hook : {Hook::ingress, Hook::egress})
            (void)require(detach(if_nametoindex("up0"), hook));
        require(remove_own_address_rules());
        begin_boot();
    }
    // The next calls are for this pod.
    void become(const std::shared_ptr<Container> &container, const std::string &number) {
        container_ = container;
        if (config_.contains("prevResult"))
            config_["prevResult"]["ips"] = {{{"address", "198.18.9." + number + "/24"}},
                                            {{"address", "2001:db8:9::" + number + "/64"}}};
    }
    // One pod lives, another one's call is cut.
    void cut(const std::string &command, const Fault &fault, bool with_dels) {
        SCOPED_TRACE(command + ", " + fault.text() + (with_dels ? ", then DEL and GC" : ", then GC"));
        const std::vector<std::shared_ptr<Container>> both = {node_.container(), node_.container()};
        become(both[0], "77");
        must("ADD");
        become(both[1], "78");
        if (command != "ADD")
            must("ADD");
        (void)hit(command, fault);
        cut_power(both);
        if (with_dels) {
            expect_done("DEL");
            become(both[0], "77");
            expect_done("DEL");
        }
        expect_done("GC");
        EXPECT_EQ(node_.state() + node_.run("nft list ruleset"), kept_);
    }

    std::string kept_;
    std::string boot_;
    int boots_ = 0;
};

TEST_P(PowerCutTest, LeavesNothing) {
    const char *cuts = std::getenv("PODLANE_POWER_CUTS");
    const std::size_t most = cuts == nullptr ? 2 : static_cast<std::size_t>(std::atoi(cuts));
    for (const std::string command : {"ADD", "DEL", "GC"}) {
        container_ = node_.container();
        if (command != "ADD")
            must("ADD");
        const auto calls = calls_of(command);
        must("DEL");
        bool with_dels = false;
        for (const Fault &fault : sample_of(faults_at(calls).first, "power " + GetParam() + command, most))
            cut(command, fault, with_dels = !with_dels);
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, PowerCutTest, testing::Values("main", "after_ipam", "uplink"), fault_mode);

} // namespace
} // namespace podlane::test
