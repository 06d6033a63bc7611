// SPDX-License-Identifier: MIT
// The model with a network that has an uplink of its own (docs/SOURCE-ROUTING.md, "Addresses of a LAN"): which frames
// of its pod leave by it, how large they may be, and in whose name nothing that arrives there reaches the pod.
#include "loader/own_addresses.hpp"
#include "tests/packet/promise_model.hpp"
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

// Beside the links of kSetUp, one with a network behind its router, a part of which is of the cluster; and routes that
// discard.
constexpr const char *kOtherLink =
    "set -e; ip link set lo up; ip -6 addr add 2001:db8:cafe::2/64 dev caliCp nodad;"
    "ip route add 192.168.133.21 dev caliB; ip -6 route add 2001:db8:133::21 dev caliB;"
    "ip link add dark0 type veth peer name pdark0; ip link set dark0 up; ip link set pdark0 up;"
    "ip addr add 198.18.2.2/24 dev dark0; ip -6 addr add 2001:db8:2::2/64 dev dark0 nodad;"
    "ip route add 198.18.3.0/24 via 198.18.2.1; ip -6 route add 2001:db8:3::/64 via 2001:db8:2::1;"
    "ip route add 198.18.6.0/24 via 198.18.2.1; ip -6 route add 2001:db8:6::/64 via 2001:db8:2::1;"
    "ip route add blackhole 198.18.4.0/24; ip -6 route add blackhole 2001:db8:4::/64";
constexpr std::array kOfCluster = {"198.18.6.0/24", "2001:db8:6::/64"};
constexpr const char *kAddDefault = "set -e; ip route add default via 203.0.113.1 dev caliCp;"
                                    "ip -6 route add default via 2001:db8:cafe::1 dev caliCp";
constexpr const char *kRemoveDefault = "set -e; ip route del default; ip -6 route del default";

// Two pods of the node are of the network; one sends. Nothing is confirmed, and no first packet is direct: whatever is
// redirected takes the network's uplink.
class UplinkModel : public PromiseModel {
  protected:
    // One frame, and its end.
    struct Ran {
        const Bytes &frame;
        std::size_t segment;
        Promise promise;
        Outcome outcome{};
        reason why = REASON_NONE;

        [[nodiscard]] bool is_dropped() const { return outcome.verdict == kDropped; }
        [[nodiscard]] bool is_redirected() const { return outcome.verdict == kRedirected; }
    };

    void prepare() override {
        shell(kSetUp);
        shell(kOtherLink);
        for (const char *own : {"2001:db8:cafe::2", "2001:db8:2::2"})
            ASSERT_TRUE(test::wait_until([&] { // the kernel makes the address its own in a worker
                const std::string is_own = "ip -6 route get " + std::string(own) + " | grep -q ^local";
                return std::system(is_own.c_str()) == 0; // NOLINT(cert-env33-c)
            }));
        require(put_own_address_rules());
        uplink_ = if_nametoindex("lan0");
        require(node().tables().counters.update(uplink_, counter_shares{}));
        uplink entry{};
        entry.networks[0] = network_id("lan");
        require(require(open_uplinks(node().root(), Access::read_write)).update(uplink_, entry));
        for (const char *one : kOfCluster) {
            const Prefix range = *parse_prefix(one);
            require(node().tables().cluster_cidrs.update(make_cluster_cidr_key(network_id("lan"), range),
                                                         make_prefix_value(range)));
        }
        second_ = {"second", node().unknown_ifindex, kSecondMac, {ip("192.168.133.20"), ip("2001:db8:133::20")}, "lan"};
        node().peer.addresses = {ip("192.168.133.21"), ip("2001:db8:133::21")};
        node().peer.network = "lan";
        for (Pod *pod : {&second_, &node().peer}) {
            pod->flags = usual_flags_ | INTERFACE_ANTI_SPOOF | INTERFACE_EGRESS_ROUTE;
            node().put(*pod);
        }
        make_lan_senders();
    }
    void make_lan_senders() {
        pod_.pod = &second_;
        pod_.mac = kSecondMac;
        pod_.gateway = kHostMac;
        pod_.addresses = second_.addresses;
        pod_.addresses.push_back(link_local_from_mac(kSecondMac));
        outside_.is_pod = false;
        outside_.mac = kNeighbourMac;
        outside_.gateway = kUplinkMac;
        for (const ip_addr &own : second_.addresses) {
            for (int often = 0; often < 3; ++often)
                for (const ip_addr &other : beyond_) {
                    add_flow(pod_, own, other);
                    add_flow(outside_, other, own);
                }
            for (const ip_addr &other : on_node_)
                add_flow(pod_, own, other);
            for (const auto *names : {&on_node_, &behind_node_, &on_default_link_})
                for (const ip_addr &name : *names)
                    add_flow(outside_, name, own);
        }
        for (const std::vector<ip_addr> &some :
             {beyond_, on_node_, behind_node_, on_default_link_, pod_.addresses, pod_.addresses})
            all_.insert(all_.end(), some.begin(), some.end());
        for (const char *one : {"0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::", "::1",
                                "ff02::1", "fe80::1", "fe80::ecee:eeff:feee:eeee"})
            all_.push_back(ip(one));
    }
    static void add_flow(ModelSender &sender, const ip_addr &from, const ip_addr &to) {
        if (is_ipv4(from) == is_ipv4(to))
            sender.flows.push_back({from, to, 40000, 80, from, to, 40000, 80, kSecondMac, 1500});
    }
    // As ADD does it.
    void put_egress_routes() {
        for (const Pod *pod : {&second_, &node().peer})
            for (const ip_addr &addr : pod->addresses) {
                source_route route{};
                route.ifindex = pod->ifindex;
                route.source = addr;
                route.uplink = uplink_;
                route.gateway = ip(is_ipv4(addr) ? "192.168.133.1" : "2001:db8:133::1");
                route.mtu = mtu_;
                route.prefix_bits = is_ipv4(addr) ? 96 + 24 : 64;
                std::ranges::copy(kHostMac, route.host_mac);
                std::ranges::copy(pod->mac, route.pod_mac);
                std::ranges::copy(kUplinkMac, route.uplink_mac);
                require(node().tables().source_routes.update({pod->ifindex, addr}, route));
            }
    }
    // Links on which the usual payloads just fit, or do not; with a default route, and without one. A source that was
    // judged before is judged again.
    void change() override {
        static constexpr std::array kLinkMtus = {1500U, 1360U, 1359U, 1300U};
        const bool had_default = has_default_;
        mtu_ = kLinkMtus.at(changes_ % kLinkMtus.size());
        has_default_ = changes_ / kLinkMtus.size() % 2 != 0;
        ++changes_;
        shell(("ip link set lan0 mtu " + std::to_string(mtu_)).c_str());
        if (has_default_ != had_default)
            shell(has_default_ ? kAddDefault : kRemoveDefault);
        put_egress_routes();
        node().forget_paths();
    }
    // Requests that are answered come in series, and on a slow machine later than in some seconds.
    [[nodiscard]] bool has_seen_all() const override {
        constexpr std::uint64_t kMostBeforeOne = 200000;
        return changes_ >= 8 && (answered_ != 0 || ran_ > kMostBeforeOne);
    }

    // False if the model and the programs disagree.
    bool holds(const ModelSender &sender, const Bytes &frame, std::size_t segment) {
        Model model(sender, frame, segment);
        Ran ran{frame, segment, model.promise()};
        How how = sender.is_pod ? How{} : How{.program = PODLANE_PROGRAM_FROM_UPLINK};
        how.ifindex = sender.is_pod ? second_.ifindex : uplink_;
        how.gso_size = static_cast<std::uint32_t>(segment);
        how.gso_segments = segment == 0 ? 0 : static_cast<std::uint32_t>(frame.size() / segment + 1);
        if (!node().try_run(frame, how, ran.outcome))
            return true;
        ++ran_;
        ran.why = counted_since(how.ifindex);
        dropped_ += ran.promise.demand == Demand::drop ? 1 : 0;
        const std::string problem = sender.is_pod ? compare_sent(model, ran) : compare_arrived(model, ran);
        if (!problem.empty())
            ADD_FAILURE() << (sender.is_pod ? "from the pod: " : "from the uplink: ") << problem << "\nthe frame\n"
                          << hex(frame) << "\nsegments of " << segment << " bytes, verdict " << ran.outcome.verdict
                          << ", " << kReasons[ran.why].name << ", the link's MTU " << mtu_
                          << (has_default_ ? ", a default route" : "");
        return problem.empty();
    }
    // The reason of the one packet since the last time.
    reason counted_since(std::uint32_t ifindex) {
        const counters now = require(sum_of(node().tables().counters, ifindex));
        counters &before = counted_before_[ifindex];
        reason found = REASON_NONE;
        for (int i = 0; i < COUNTER_REASONS; ++i)
            if (i != REASON_RECEIVED_DIRECT && i != REASON_RECEIVED_UPLINK && i != REASON_RECEIVED_HOST &&
                now.by_reason[i].packets != before.by_reason[i].packets)
                found = static_cast<reason>(i);
        before = now;
        return found;
    }

    // Whoever else sends in the pod's name is dropped as on every network. Segments are left out where they might not
    // fit: the kernel finds no transport header in a test run, and cannot measure them.
    std::string compare_sent(const Model &model, const Ran &ran) {
        const Bytes &got = ran.outcome.frame;
        const bool stays = is_one_of(on_node_, model.destination()) || is_in(nowhere_, model.destination());
        const bool is_large = model.is_ip() && end_of(ran.frame) > 14 + mtu_;
        const bool leaves = ran.segment == 0 && ran.promise.demand == Demand::no_drop && model.is_plain() &&
                            !model.is_discovery() && is_one_of(beyond_, model.destination()) &&
                            is_one_of(second_.addresses, model.source()) && is_routable(ran.frame, kHostMac);
        const bool may_not_fit = ran.why == REASON_DROP_MALFORMED && (ran.segment != 0 || (is_large && !stays));
        too_large_ += leaves && is_large ? 1 : 0;
        if (ran.promise.demand == Demand::drop && !ran.is_dropped())
            return std::string("not dropped: ") + ran.promise.why;
        if (ran.promise.demand == Demand::no_drop && ran.is_dropped() && !may_not_fit)
            return std::string("dropped: ") + ran.promise.why;
        if (leaves && !(is_large ? ran.is_dropped() : ran.is_redirected()))
            return is_large ? "larger than the link, and not dropped" : "does not leave by the network's uplink";
        if (ran.is_dropped())
            return "";
        if (!ran.is_redirected())
            return ran.promise.must_be_answered ? "not answered" : compare_left(model, ran);
        if (ran.promise.may_be_answered)
            return differs("answered", model.answer(), got);
        ++left_;
        if (ran.why != REASON_SENT_WAY || (ran.outcome.mark & PODLANE_MARK) == 0)
            return "redirected by another way than the network's uplink";
        if (!model.is_ip() || stays)
            return "leaves the node, although its destination is there or is never forwarded";
        if (!is_one_of(second_.addresses, model.source()) || !is_routable(ran.frame, kHostMac))
            return "leaves, although no router would forward it";
        if (ran.segment == 0 && got.size() > 14 + mtu_)
            return "leaves, and is larger than the link";
        return compare_routed(ran, nullptr);
    }
    std::string compare_arrived(const Model &model, const Ran &ran) {
        const Bytes &got = ran.outcome.frame;
        const Pod *to = owner_of(model.destination());
        const bool is_deliverable = ran.segment == 0 && to != nullptr && model.is_plain() && model.is_header_right() &&
                                    !model.is_discovery() && is_routable(ran.frame, kUplinkMac) &&
                                    end_of(ran.frame) <= 14 + to->mtu;
        refused_ += is_deliverable && is_refused(model.source()) ? 1 : 0;
        if (ran.promise.demand == Demand::drop && !ran.is_dropped())
            return std::string("not dropped: ") + ran.promise.why;
        if (ran.promise.demand == Demand::no_drop && ran.is_dropped())
            return std::string("dropped: ") + ran.promise.why;
        if (is_deliverable && is_one_of(beyond_, model.source()) && !ran.is_redirected())
            return "not delivered";
        if (ran.is_dropped())
            return "";
        if (!ran.is_redirected())
            return compare_left(model, ran);
        if (ran.why == REASON_UPLINK_ARP || ran.why == REASON_UPLINK_ND)
            return compare_answer(model, ran);
        ++arrived_;
        if (ran.why != REASON_UPLINK_DELIVERED || !model.is_ip() || to == nullptr)
            return "redirected elsewhere than to the pod that it is for";
        if (is_refused(model.source()))
            return "delivered in the name of " + to_string(model.source());
        if (!is_routable(ran.frame, kUplinkMac) || (ran.segment == 0 && got.size() > 14 + to->mtu))
            return "delivered, although no router would forward it";
        return compare_routed(ran, &to->mac);
    }
    // Names that the host stack decides about, and its reverse path filter.
    [[nodiscard]] bool is_refused(const ip_addr &source) const {
        return is_one_of(on_node_, source) || is_one_of(behind_node_, source) || is_in(nowhere_, source) ||
               (!has_default_ && is_one_of(on_default_link_, source));
    }
    const Pod *owner_of(const ip_addr &addr) {
        for (const Pod *pod : {&second_, &node().peer})
            if (is_one_of(pod->addresses, addr))
                return pod;
        return nullptr;
    }

    // Of the IP packet, as its header counts.
    static std::size_t end_of(const Bytes &frame) {
        const bool v4 = frame[12] == 0x08;
        const std::size_t at = v4 ? 16 : 18;
        return (v4 ? 14U : 54U) + (std::size_t{frame[at]} << 8U | frame[at + 1]);
    }
    static bool is_routable(const Bytes &frame, const Mac &router) {
        return frame[frame[12] == 0x08 ? 22 : 21] > 1 && std::equal(router.begin(), router.end(), frame.begin());
    }
    // To the host stack goes the frame as it came, but for its padding.
    static std::string compare_left(const Model &model, const Ran &ran) {
        const Bytes &got = ran.outcome.frame;
        const bool is_same = got == ran.frame || (model.is_ip() && got == cut(ran.frame, end_of(ran.frame)));
        return is_same ? "" : "changed on its way to the host stack:\n" + hex(got);
    }
    // As a router forwards it, without padding. `to`: the receiver's MAC, if its kernel does not write that later.
    static std::string compare_routed(const Ran &ran, const Mac *to) {
        const Bytes &got = ran.outcome.frame;
        const bool v4 = ran.frame[12] == 0x08;
        Bytes expected = cut(ran.frame, end_of(ran.frame));
        if (expected.size() != got.size())
            return differs("forwarded", expected, got);
        --expected[v4 ? 22 : 21];
        if (to != nullptr) {
            std::ranges::copy(*to, expected.begin());
            std::ranges::copy(kHostMac, expected.begin() + 6);
        }
        if (v4) { // a wrong checksum, which is not read behind options, is as wrong as before
            const std::size_t header = std::min<std::size_t>((ran.frame[14] & 15U) * std::size_t{4}, got.size() - 14);
            if (checksum(std::span(ran.frame).subspan(14, header)) != checksum(std::span(got).subspan(14, header)))
                return "the header's checksum is wrong by something else";
            std::copy_n(got.begin() + 24, 2, expected.begin() + 24);
        }
        return differs("forwarded", expected, got);
    }
    // The uplink answers for the network's pods, and for nobody else.
    std::string compare_answer(const Model &model, const Ran &ran) {
        const Bytes &request = ran.frame;
        const bool v6 = model.is_ip();
        const auto target = addr_from_bytes(request.data() + (v6 ? 62 : 38), v6 ? 16 : 4);
        ++answered_;
        if (!target || owner_of(*target) == nullptr)
            return "answered for another";
        if (!v6)
            return differs("answered", arp_reply(request), ran.outcome.frame);
        Mac mac{};
        std::copy_n(request.begin() + 6, mac.size(), mac.begin());
        constexpr std::uint32_t kOverride = 0x20000000, kSolicitedOverride = 0x60000000;
        const Bytes expected =
            is_none(model.source()) // it claims the address
                ? advertisement({{0x33, 0x33, 0, 0, 0, 1}, kUplinkMac}, *target, ip("ff02::1"), kOverride)
                : advertisement({mac, kUplinkMac}, *target, model.source(), kSolicitedOverride);
        return differs("answered", expected, ran.outcome.frame);
    }
    static Bytes arp_reply(const Bytes &request) {
        Bytes out = request;
        const auto copy = [&](int from, int size, int to) {
            std::copy_n(request.begin() + from, size, out.begin() + to);
        };
        copy(22, 6, 0);
        copy(22, 6, 32);
        copy(28, 4, 38);
        copy(38, 4, 28);
        for (const int at : {6, 22})
            std::ranges::copy(kUplinkMac, out.begin() + at);
        out[21] = 2;
        return out;
    }

    static std::vector<ip_addr> ips(std::initializer_list<const char *> texts) {
        std::vector<ip_addr> out;
        for (const char *one : texts)
            out.push_back(ip(one));
        return out;
    }
    static std::vector<Prefix> prefixes(std::initializer_list<const char *> texts) {
        std::vector<Prefix> out;
        for (const char *one : texts)
            out.push_back(*parse_prefix(one));
        return out;
    }
    // Of the link, of no route but a default one, and behind a router that the node has a route by.
    const std::vector<ip_addr> beyond_ =
        ips({"192.168.133.9", "198.18.9.9", "198.18.3.9", "2001:db8:133::9", "2001:db8:9::9", "2001:db8:3::9"});
    // Its addresses, and its pods of any network.
    const std::vector<ip_addr> on_node_ =
        ips({"203.0.113.2", "198.18.2.2", "192.0.2.10", "198.51.100.9", "192.168.133.20", "192.168.133.21",
             "2001:db8:cafe::2", "2001:db8:2::2", "2001:db8::10", "2001:db8:133::20", "2001:db8:133::21"});
    // Of another link, of a route that discards, and of the cluster.
    const std::vector<ip_addr> behind_node_ =
        ips({"198.18.2.9", "198.18.4.9", "198.18.6.9", "2001:db8:2::9", "2001:db8:4::9", "2001:db8:6::9"});
    const std::vector<ip_addr> on_default_link_ = ips({"203.0.113.9", "2001:db8:cafe::9"});
    // No router forwards to them, or from them.
    const std::vector<Prefix> nowhere_ = prefixes({"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4",
                                                   "255.255.255.255/32", "::/127", "fe80::/10", "ff00::/8"});
    std::vector<ip_addr> all_{};
    std::map<std::uint32_t, counters> counted_before_;
    std::uint32_t mtu_ = 0;
    bool has_default_ = false;
    unsigned changes_ = 0;
    std::uint64_t left_ = 0, too_large_ = 0;
    std::uint64_t arrived_ = 0, refused_ = 0, answered_ = 0;
};

TEST_F(UplinkModel, HoldsForGeneratedFrames) {
    const auto seed = test::printed_seed();
    const auto wanted = test::number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    ModelFrames of_pod(pod_, all_, random), of_lan(outside_, all_, random);
    const auto end = Clock::now() + std::chrono::seconds(4);
    const std::uint64_t before = counted();
    do {
        change();
        for (int i = 0; i < 1024; ++i) {
            const bool is_sent = random() % 2 == 0;
            ASSERT_TRUE(holds(is_sent ? pod_ : outside_, (is_sent ? of_pod : of_lan).next(), any_segment(random)))
                << "PODLANE_SEED=" << seed << ", frame " << ran_;
        }
    } while (!has_seen_all() || (wanted != 0 ? ran_ < wanted : Clock::now() < end));
    std::cout << ran_ << " frames, " << dropped_ << " had to be dropped; " << left_ << " left by the uplink, "
              << too_large_ << " were too large for it; " << arrived_ << " were delivered, " << refused_
              << " had to be refused, " << answered_ << " were answered" << std::endl;
    EXPECT_EQ(counted() - before, ran_);
    EXPECT_GT(dropped_, ran_ / 50);
    EXPECT_GT(left_, ran_ / 100);
    EXPECT_GT(too_large_, ran_ / 1000);
    EXPECT_GT(arrived_, ran_ / 100);
    EXPECT_GT(refused_, ran_ / 200);
    EXPECT_GT(answered_, 0U);
}

} // namespace
} // namespace podlane::packet
