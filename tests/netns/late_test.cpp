// SPDX-License-Identifier: MIT
// The kernel makes an IPv6 address, and the interface itself, usable late: ADD waits for it, and not for ever.
#include "tests/netns/rollback.hpp"

#include "loader/net/link.hpp"

#include <net/if.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

using std::chrono::steady_clock, std::chrono::seconds, std::chrono::milliseconds;

class LateAddressTest : public RollbackTest {
  protected:
    // A PATH on which nft, which masquerades before ADD waits, replaces the address by one that the kernel uses only
    // after this many probes, one a second.
    [[nodiscard]] std::string held_back(const Container &container, int probes) const {
        const std::string directory = node_.dir() + "/late";
        fs::create_directory(directory);
        const std::string script = directory + "/nft";
        std::ofstream(script) << "#!/bin/sh -e\nln -sf /usr/sbin/nft \"$0\"\nnsenter --net=" << container.path()
                              << R"( sh -ec '
    addr=$(ip -6 -o addr show dev eth0 scope global | sed "s/.*inet6 \([^ ]*\) .*/\1/")
    sysctl -qw net.ipv6.conf.eth0.router_solicitation_delay=0 net.ipv6.conf.eth0.dad_transmits=)"
                              << probes << R"(
    ip addr del "$addr" dev eth0
    ip addr add "$addr" dev eth0'
exec nft "$@"
)";
        fs::permissions(script, fs::perms::owner_all);
        return directory + ":/usr/sbin:/usr/bin:/sbin:/bin";
    }
    static milliseconds since(steady_clock::time_point start) {
        return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
    }

    const Json keys_ = {{"ipMasq", true}};
};

TEST_F(LateAddressTest, IsWaitedFor) {
    const auto container = node_.container();
    const auto start = steady_clock::now();
    const Reply reply = add(*container, keys_, {{"PATH", held_back(*container, 3)}});
    ASSERT_THAT(reply, succeeds()) << "the address came after 3 s";
    EXPECT_GT(since(start), seconds(2)) << "the address was to be late";
    EXPECT_EQ(container->run("ip -6 -o addr show dev eth0 tentative"), "");
    EXPECT_TRUE(ping(node_.ns(), to_string(look_at(container, reply.json).v6)));
    EXPECT_THAT(del(*container, keys_), succeeds());
}

TEST_F(LateAddressTest, ThatStaysUnusableFailsAdd) {
    prepare(keys_);
    const auto container = node_.container();
    container->run("ip link set lo up"); // as any ADD leaves it
    const std::string before = node_.state() + node_.run("nft list ruleset");
    const auto start = steady_clock::now();
    const Reply reply = add(*container, keys_, {{"PATH", held_back(*container, 1000)}});
    EXPECT_THAT(reply, fails_with(11, {"the container's address 2001:db8:9::", "did not become usable within 10 s"}));
    EXPECT_GT(since(start), seconds(10));
    EXPECT_EQ(node_.state() + node_.run("nft list ruleset"), before);
    EXPECT_THAT(container->run("ip -o link"), Not(HasSubstr("eth0")));
}

// While others change interfaces, the kernel's worker has to wait for its turn. What a pod sends before that is lost.
class LateLinkTest : public RollbackTest {
  protected:
    // Changes interfaces of a namespace of its own without a pause.
    class Busy {
      public:
        explicit Busy(const net::Namespace &where) {
            for (int i = 0; i < 4; ++i)
                threads_.emplace_back([this, netlink = require(net::Netlink::open_in(where))]() mutable {
                    for (std::uint32_t mtu = 1400; !stop_; mtu = mtu == 1400 ? 1300 : 1400)
                        (void)require(net::set_link(netlink, 1, {.mtu = mtu}));
                });
        }
        ~Busy() {
            stop_ = true;
            for (std::thread &thread : threads_)
                thread.join();
        }
        Busy(const Busy &) = delete;
        Busy &operator=(const Busy &) = delete;

      private:
        std::atomic<bool> stop_ = false;
        std::vector<std::thread> threads_;
    };
    // As the kernel sees it at this moment: since Linux 6.8, `ip link` makes the kernel do the worker's part.
    static bool is_running(const Container &container) {
        const Fd socket = open_socket(container.ns(), Transport::udp, true);
        ifreq wanted{};
        std::strcpy(wanted.ifr_name, "eth0");
        return ioctl(socket.get(), SIOCGIFFLAGS, &wanted) == 0 && (wanted.ifr_flags & IFF_RUNNING) != 0;
    }
};

TEST_F(LateLinkTest, IsWaitedFor) {
    const Json keys = {{"ipFamilies", {"IPv4"}}};
    prepare(keys);
    const auto other = node_.container();
    const Busy busy(other->ns());
    for (int i = 0; i < 30; ++i) {
        const auto container = node_.container();
        ASSERT_THAT(add(*container, keys), succeeds());
        EXPECT_TRUE(is_running(*container)) << "after " << i << " pods";
        ASSERT_THAT(del(*container, keys), succeeds());
    }
}

} // namespace
} // namespace podlane::test
