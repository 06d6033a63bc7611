// SPDX-License-Identifier: MIT
// ADD and DEL again and again, with traffic: what the maps, the node and the disk hold afterwards is what they held
// before. PODLANE_SOAK says how many pods.
#include "tests/netns/verbs.hpp"

#include "loader/pins.hpp"

#include <bpf/bpf.h>

#include <limits>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 8080;
constexpr int kAtOnce = 4;

int rounds() {
    const char *wanted = std::getenv("PODLANE_SOAK");
    return (wanted == nullptr ? 12 : std::atoi(wanted)) / kAtOnce;
}

// Of a program it is what the instructions take.
std::uint64_t memory_of(const std::string &pin) {
    const Fd fd(bpf_obj_get(pin.c_str()));
    std::ifstream facts("/proc/self/fdinfo/" + std::to_string(fd.get()));
    for (std::string word; facts >> word;)
        if (std::uint64_t bytes = 0; word == "memlock:" && facts >> bytes)
            return bytes;
    return 0;
}

// In KiB, of the whole machine: what the kernel cannot reclaim. Network namespaces, interfaces, routes and entries are
// in slabs, large maps and programs in vmalloc.
std::uint64_t kernel_memory() {
    static const std::set<std::string> kParts = {
        "SUnreclaim:", "KernelStack:", "PageTables:", "VmallocUsed:", "Percpu:"};
    std::uint64_t sum = 0;
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string> parts = words(line);
        sum += kParts.contains(parts.at(0)) ? std::stoul(parts.at(1)) : 0;
    }
    return sum;
}

class SoakTest : public VerbsTest {
  protected:
    using Held = std::map<std::string, std::uint64_t>;

    [[nodiscard]] Held held() const {
        Held all;
        for (const auto &pin : std::filesystem::directory_iterator(live_directory(node_.bpffs())))
            all["bytes of " + pin.path().filename().string()] = memory_of(pin.path());
        all["files"] = 0;
        for (const auto &file : std::filesystem::recursive_directory_iterator(node_.dir()))
            all["files"] += file.is_regular_file() ? 1 : 0;
        all["interfaces"] = ip_json(node_.ns(), "link").size();
        for (const std::string family : {"-4", "-6"})
            all["routes " + family] = ip_json(node_.ns(), family + " route show table all").size();
        for (const std::string what : {"neigh show nud permanent", "rule", "-6 rule"})
            all[what] = ip_json(node_.ns(), what).size();
        all["bytes of nft rules"] = must_run(node_.ns(), words("nft list ruleset")).size();
        all["descriptors of the test"] = descriptors();
        return all;
    }
    // As many pods at once as a node's runtime starts.
    void live_and_die() {
        std::vector<std::thread> pods;
        for (int i = 0; i < kAtOnce; ++i)
            pods.emplace_back([this, container = node_.container()] { live_and_die(*container); });
        for (std::thread &pod : pods)
            pod.join();
    }
    void live_and_die(const Container &container) const {
        ASSERT_THAT(add(container, keys_), succeeds());
        for (const ip_addr &addr : {server_.v4, server_.v6})
            ASSERT_NO_FATAL_FAILURE(talk(container.ns(), addr));
        ASSERT_THAT(del(container, keys_), succeeds());
    }
    // Until both ends have closed: a pod that dies before would leave the server with half a connection.
    static void talk(const net::Namespace &pod, const ip_addr &addr) {
        const Fd socket = connected(pod, Transport::tcp, {addr, kPort});
        ASSERT_EQ(send_text(socket, "x"), 0) << to_string(addr);
        ASSERT_EQ(receive(socket).text, "x") << to_string(addr);
        ASSERT_EQ(shutdown(socket.get(), SHUT_WR), 0);
        ASSERT_EQ(receive(socket).text, "") << to_string(addr);
    }
    static std::size_t descriptors() {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }

    const Json keys_ = {{"ipMasq", true},
                        {"allowedSources", {"192.0.2.0/24"}},
                        {"runtimeConfig", {{"bandwidth", {{"ingressRate", 100000000}, {"ingressBurst", 10000000}}}}}};
    const Pod server_ = make(keys_);
    const EchoServer v4_{server_.container->ns(), true, kPort};
    const EchoServer v6_{server_.container->ns(), false, kPort};
};

TEST_F(SoakTest, AddAndDelLeaveTheNodeAsItWas) {
    live_and_die();
    const Held before = held();
    // Flat is what grows by less than this from the second quarter on, however many rounds come: caches are warm by
    // then, and conntrack holds as many dead connections as it ever will.
    constexpr std::uint64_t kNoise = std::uint64_t{32} * 1024;
    std::uint64_t warm = std::numeric_limits<std::uint64_t>::max();
    for (int round = 0; round < rounds() && !HasFatalFailure(); ++round) {
        live_and_die();
        if (round >= rounds() / 4 && round <= rounds() / 2)
            warm = std::min(warm, kernel_memory());
    }
    Held after;
    (void)wait_until([&] { return (after = held()) == before; }); // the servers close their ends a moment later
    for (const auto &[what, amount] : after)
        EXPECT_EQ(amount, before.contains(what) ? before.at(what) : 0) << what;
    if (std::getenv("PODLANE_SOAK") != nullptr) { // alone: the nodes of other tests come and go
        const auto is_flat = [&] { return kernel_memory() <= warm + kNoise; }; // what has died is freed a moment later
        EXPECT_TRUE(wait_until(is_flat, std::chrono::minutes(1))) << "the kernel's memory grows";
    }
    std::cout << rounds() * kAtOnce << " pods; the kernel's memory in the second quarter: " << warm
              << " KiB; at the end: " << kernel_memory() << " KiB\n";
}

} // namespace
} // namespace podlane::test
