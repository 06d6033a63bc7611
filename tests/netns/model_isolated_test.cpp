// SPDX-License-Identifier: MIT
// An isolated pod among a hostile pod, a peer, a host on the uplink and a node that may open no connection to it. Of
// all that they generate, only what belongs to the pod's own conversations arrives, although the host's rules let
// everything pass. PODLANE_SEED=N repeats a run; PODLANE_FRAMES=N sends so many frames instead of a few seconds.
#include "tests/harness/environment.hpp"
#include "tests/netns/arrived_frame.hpp"
#include "tests/netns/captured.hpp"
#include "tests/netns/model_promise.hpp"

namespace podlane::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBatch = 64;
constexpr std::chrono::seconds kUsual{2};
constexpr std::uint16_t kPeerPort = 7;
constexpr std::uint16_t kWithOpen = 41000, kWithOutside = 41010; // the victim's ports
constexpr Mac kNodeWireMac{0x02, 0, 0, 0, 0x77, 0x01};           // the node's kernel has another
const std::string kSaid = "said in a conversation";
const std::string kByNode = "sent by a socket of the node";

class IsolatedOnVeths : public PromiseOnVeths {
  protected:
    enum By : std::size_t { kAttacker, kOpenPod, kOutside, kNodeWire, kSenders };
    static constexpr std::array kShares = {kAttacker, kAttacker, kAttacker, kOpenPod,
                                           kOpenPod,  kOutside,  kOutside,  kNodeWire};
    // A conversation that the victim has begun.
    struct Talk {
        std::string with;
        Endpoint own;
        Endpoint peer;
        Fd at_own;
        Fd at_peer;
    };
    struct Wired {
        const ModelSender &sender;
        packet::ModelFrames frames;
        Wire wire;
    };

    // In place of the one that closes the FORWARD chain: here all that isolation lets pass arrives.
    void prepare() override {
        lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0"); // forged ones, too
        const Json keys = {{"clusterCIDRs", cluster()}, {"firstPacket", "host"}};
        attacker_ = add_refused(keys);
        open_ = add_refused(keys);
        Json of_victim = keys, of_member = keys;
        of_victim.update(victim_keys());
        of_member["groups"] = Json::array({"name:another"});
        victim_ = add_pod(of_victim);
        member_ = add_pod(of_member);
        for (const Pod *pod : {&attacker_, &open_})
            keep_mac(*lab_, *pod);
        node_mac_ = Wire(lab_->node().ns(), "up0").mac();
        of_node_.push_back(link_local_from_mac(node_mac_));
        make_senders();
        of_open_ = {
            .mac = open_.mac, .gateway = open_.gateway_mac, .addresses = {open_.v4, open_.v6, open_.link_local}};
        node_wire_ = {.is_pod = false, .mac = kNodeWireMac, .gateway = victim_.mac};
        close_victim();
        for (const bool v4 : {true, false}) {
            lead_outside(v4);
            const ip_addr &own = victim_.addr(v4);
            begin("the open pod", open_.ns(), {own, kWithOpen}, {open_.addr(v4), kPeerPort});
            begin("the outside", lab_->outside(), {own, kWithOutside}, {far(v4), kPeerPort});
            add_flows(v4);
            node_sockets_.at(v4) = open_socket(lab_->node().ns(), Transport::udp, v4, {node(v4), kPeerPort});
            for (const char *what :
                 {"datagrams of the open pod", "datagrams of the outside", "errors of the open pod about itself",
                  "errors of the outside about itself", "errors of the outside about others",
                  "frames of the node's wire", "at the open pod, of the attacker", "at the open pod, of the outside",
                  "at the open pod, of the node's socket"})
                seen_[what + family(v4)] = 0;
        }
    }
    [[nodiscard]] Json victim_keys() const override {
        return {{"groups", Json::array({"name:another"})}, {"isolation", "group"}, {"host", "deny"}};
    }
    [[nodiscard]] virtual Json cluster() const { return Json::array({"198.18.0.0/16", "2001:db8::/32"}); }
    // A pod that the victim does not let in.
    virtual Pod add_refused(const Json &keys) { return add_pod(keys); }

    static std::string family(bool v4) { return v4 ? " by IPv4" : " by IPv6"; }
    static ip_addr far(bool v4) { return ip(v4 ? Lab::kOutside4 : Lab::kOutside6); }
    static ip_addr node(bool v4) { return ip(v4 ? Lab::kNode4 : Lab::kNode6); }
    [[nodiscard]] std::vector<ip_addr> of_refused() const {
        return {attacker_.v4, attacker_.v6, attacker_.link_local, open_.v4, open_.v6, open_.link_local};
    }

    // It opens no other connections, and believes no errors about its way out.
    void close_victim() const {
        for (const std::string tables : {"iptables", "ip6tables"}) {
            (void)must_run(victim_.ns(), words(tables + " -P OUTPUT DROP"));
            (void)must_run(victim_.ns(),
                           words(tables + " -A OUTPUT -p udp --dport " + std::to_string(kPeerPort) + " -j ACCEPT"));
        }
        (void)victim_.container->run(
            "sysctl -qw net.ipv4.conf.all.accept_redirects=0 net.ipv4.conf.eth0.accept_redirects=0");
    }
    void lead_outside(bool v4) {
        (void)must_run(lab_->outside(), words(std::string("ip route add ") + (v4 ? "198.18.0.0/16" : "2001:db8::/32") +
                                              " via " + to_string(node(v4))));
        lab_->node().run("ip neigh replace " + to_string(far(v4)) + " lladdr " + to_string(outside_.mac) +
                         " dev up0 nud permanent");
    }
    void begin(const char *with, const net::Namespace &where, const Endpoint &own, const Endpoint &peer) {
        Talk &made = talks_.emplace_back();
        made.with = with;
        made.own = own;
        made.peer = peer;
        made.at_own = connected(victim_.ns(), Transport::udp, peer, own);
        made.at_peer = connected(where, Transport::udp, own, peer);
        if (!goes_on(made))
            throw std::runtime_error("no conversation with " + made.with + " at " + to_string(peer));
    }
    static bool goes_on(const Talk &talk) { return says(talk.at_own, talk.at_peer) && says(talk.at_peer, talk.at_own); }
    // Forged datagrams, and errors, wait in both sockets.
    static bool says(const Fd &from, const Fd &to) {
        return wait_until([&] {
            empty(from);
            empty(to);
            return send_text(from, kSaid) == 0 && receive(to, kSaid.size(), quiet()).text == kSaid;
        });
    }
    static void empty(const Fd &socket) {
        while (recv(socket.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno != EAGAIN) {
        }
    }

    [[nodiscard]] packet::ModelFlow flow(const Endpoint &from, const Endpoint &to) const {
        return {from.addr, to.addr,   from.port, to.port,     from.addr,
                to.addr,   from.port, to.port,   victim_.mac, victim_.mtu};
    }
    // Beside those of make_senders(): to the open pod, and of the conversations, from who is in them and who is not.
    void add_flows(bool v4) {
        const ip_addr &victim = victim_.addr(v4);
        const ip_addr &open = open_.addr(v4);
        pod_.flows.push_back(flow({attacker_.addr(v4), 40002}, {open, 80}));
        outside_.flows.push_back(flow({far(v4), 50001}, {open, 80}));
        of_open_.flows.push_back(flow({open, 40000}, {victim, 80}));
        node_wire_.flows.push_back(flow({node(v4), 40000}, {victim, 80}));
        for (const Talk &one : talks_) {
            if (is_ipv4(one.own.addr) != v4)
                continue;
            pod_.flows.push_back(flow({attacker_.addr(v4), kPeerPort}, one.own));
            outside_.flows.push_back(flow({far(v4), kPeerPort}, one.own));
            of_open_.flows.push_back(flow({open, kPeerPort}, one.own));
            node_wire_.flows.push_back(flow(one.peer, one.own));
        }
    }
    // Hosts on the uplink claim no refused pod's address: so each of those is known by its own.
    [[nodiscard]] std::vector<ip_addr> addresses_for(By by) const {
        std::vector<ip_addr> out = addresses();
        out.insert(out.end(), {open_.v4, open_.v6, victim_.v4, victim_.v6, member_.v4, member_.v6});
        if (by == kOutside)
            std::erase_if(out, [&](const ip_addr &one) { return packet::is_one_of(of_refused(), one); });
        return out;
    }
    [[nodiscard]] ip_addr any_source(By by, const Talk &talk, std::mt19937_64 &random) const {
        const bool v4 = is_ipv4(talk.own.addr), is_first = random() % 2 == 0;
        switch (by) {
        case kAttacker:
            return attacker_.addr(v4);
        case kOpenPod:
            return open_.addr(v4);
        case kOutside:
            return is_first ? far(v4) : member_.addr(v4);
        default:
            return is_first ? node(v4) : talk.peer.addr;
        }
    }
    // A datagram of a conversation, or an error about it, with right checksums; or of the next port.
    [[nodiscard]] Bytes about(const Talk &talk, const ModelSender &sender, const ip_addr &source,
                              std::mt19937_64 &random) const {
        const auto near = [&](std::uint16_t port) {
            return static_cast<std::uint16_t>(port + (random() % 4 == 0 ? 1 : 0));
        };
        const Endpoint &own = talk.own, &peer = talk.peer;
        if (random() % 2 == 0)
            return frame(sender.gateway, sender.mac, udp({source, own.addr, near(peer.port), near(own.port)}));
        Bytes quoted = to_bytes(udp({own.addr, peer.addr, near(own.port), near(peer.port)}));
        quoted.insert(quoted.begin(), 4, 0);
        const std::uint8_t type = is_ipv4(own.addr) ? std::array<std::uint8_t, 3>{3, 11, 12}.at(random() % 3)
                                                    : static_cast<std::uint8_t>(1 + random() % 4);
        return frame(sender.gateway, sender.mac, icmp({source, own.addr}, type, 0, quoted));
    }
    [[nodiscard]] Sent any(By by, Wired &from, std::mt19937_64 &random) {
        if (random() % 4 == 0) {
            const Talk &talk = talks_.at(random() % talks_.size());
            return {about(talk, from.sender, any_source(by, talk, random), random)};
        }
        Sent one{from.frames.next()};
        one.left = any_left(one.frame, random);
        return one;
    }
    void send_as_node(std::mt19937_64 &random) const {
        const std::uint16_t port = std::array<std::uint16_t, 3>{80, kWithOpen, kWithOutside}.at(random() % 3);
        for (const bool v4 : {true, false})
            for (const Pod *pod : {&victim_, &open_})
                (void)send_datagram(node_sockets_.at(v4), {pod->addr(v4), port}, kByNode);
    }

    static bool has_text(const Bytes &frame, const std::string &text) {
        return contains(frame, Bytes(text.begin(), text.end()));
    }
    void note(const std::string &what, bool v4) { ++seen_.at(what + family(v4)); }
    // A pod's errors are about itself; who is beyond the uplink may be a router.
    [[nodiscard]] bool is_of_talk(const Bytes &frame, const Talk &talk) {
        const ArrivedFrame of(frame);
        const bool v4 = is_ipv4(talk.own.addr), is_by_peer = of.source() == talk.peer.addr;
        const auto fragment = of.fragment();
        if (of.is_datagram(talk.peer, talk.own)) {
            if (fragment)
                begun_.insert(*fragment);
            if (!has_text(frame, kSaid))
                note("datagrams of " + talk.with, v4);
            return true;
        }
        if (of.is_error_about(talk.own, talk.peer) && (is_by_peer || !packet::is_one_of(of_refused(), of.source()))) {
            note(is_by_peer ? "errors of " + talk.with + " about itself" : "errors of the outside about others", v4);
            return true;
        }
        return fragment && of.is_later_of(talk.own.addr) && begun_.contains(*fragment);
    }
    // Of what the node sends by the victim's link, errors and the resolution of addresses arrive.
    [[nodiscard]] bool may_arrive(const Bytes &frame) {
        const ArrivedFrame of(frame);
        if (!is_by(frame, 6, victim_.gateway_mac)) {
            if (!of.is_of_link() && !of.is_error())
                return false;
            note("frames of the node's wire", ethertype(frame) != ETHERTYPE_IPV6);
            return true;
        }
        const bool is_nodes = !is_foreign(frame, of_node_, victim_.gateway_mac);
        if (of.is_of_link())
            return is_nodes;
        // The node's own errors are let in: its kernel sends them by the source route of the packet they are about.
        const bool has_options = ethertype(frame) == ETHERTYPE_IP && (frame[14] & 15U) > 5;
        if (is_nodes && of.is_error() && has_options)
            return true;
        return std::ranges::any_of(talks_, [&](const Talk &talk) { return is_of_talk(frame, talk); });
    }
    void note_at_open(const Bytes &frame) {
        for (const bool v4 : {true, false}) {
            if (is_from(frame, attacker_.addr(v4)))
                note("at the open pod, of the attacker", v4);
            if (is_from(frame, far(v4)))
                note("at the open pod, of the outside", v4);
            if (is_from(frame, node(v4)) && has_text(frame, kByNode))
                note("at the open pod, of the node's socket", v4);
        }
    }
    [[nodiscard]] std::uint64_t least() const { return sent_ / 2000; }
    [[nodiscard]] bool has_seen_all() const {
        return std::ranges::all_of(seen_, [&](const auto &one) { return one.second > least(); });
    }
    void let_in_only_conversations();

    OneCpu one_cpu_;
    Pod open_;   // has a conversation with the victim, which does not let it in
    Pod member_; // the victim lets it in; it sends nothing, and others claim to be it
    ModelSender of_open_;
    ModelSender node_wire_;
    std::vector<Talk> talks_;
    std::array<Fd, 2> node_sockets_;
    std::map<std::string, std::uint64_t> seen_;
    std::set<FragmentOf> begun_; // datagrams in fragments, of which the first has arrived
};

void IsolatedOnVeths::let_in_only_conversations() {
    const auto seed = printed_seed();
    const auto wanted = number_from("PODLANE_FRAMES", 0);
    std::mt19937_64 random(seed);
    std::array<Wired, kSenders> all = {{
        {pod_, {pod_, addresses_for(kAttacker), random}, attacker_.wire()},
        {of_open_, {of_open_, addresses_for(kOpenPod), random}, open_.wire()},
        {outside_, {outside_, addresses_for(kOutside), random}, {lab_->outside(), "eth0"}},
        {node_wire_, {node_wire_, addresses_for(kNodeWire), random}, {lab_->node().ns(), victim_.host_ifname}},
    }};
    const Wire isolated = victim_.wire();
    const auto end = Clock::now() + kUsual;
    do {
        for (std::size_t i = 0; i < kBatch; ++i) {
            const By by = kShares.at(random() % kShares.size());
            (void)send(all.at(by).wire, any(by, all.at(by), random));
        }
        send_as_node(random);
        for (const Talk &talk : talks_) // behind all that was sent
            ASSERT_TRUE(goes_on(talk)) << talk.with << " at " << to_string(talk.peer) << ", PODLANE_SEED=" << seed;
        for (const Bytes &frame : isolated.arrived())
            EXPECT_TRUE(may_arrive(frame)) << "arrived: " << hex(frame);
        for (const Bytes &frame : all.at(kOpenPod).wire.arrived())
            note_at_open(frame);
        ASSERT_FALSE(HasFailure()) << "PODLANE_SEED=" << seed << ", behind " << sent_ << " frames";
        ASSERT_TRUE(is_half_sent()) << run_so_far();
    } while (wanted != 0 ? sent_ < wanted : Clock::now() < end + (has_seen_all() ? 0 : 10) * kUsual);
    const std::uint64_t dropped = lab_->count(victim_, REASON_DROP_ISOLATION);
    std::cout << run_so_far() << ", " << dropped << " dropped at the isolated pod" << std::endl;
    EXPECT_GT(dropped, sent_ / 20);
    for (const auto &[what, count] : seen_) {
        std::cout << count << " " << what << std::endl;
        EXPECT_GT(count, least()) << what;
    }
}

TEST_P(IsolatedOnVeths, NothingOfOthersArrives) { let_in_only_conversations(); }

INSTANTIATE_TEST_SUITE_P(All, IsolatedOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

// The others are of another network. No generated address is in the cluster, which is let in.
class IsolatedByNetworkOnVeths : public IsolatedOnVeths {
  protected:
    void TearDown() override {
        for (const Pod &pod : refused_)
            detach_pod(pod);
    }
    [[nodiscard]] Json victim_keys() const override { return {{"isolation", "network"}, {"host", "deny"}}; }
    [[nodiscard]] Json cluster() const override { return Json::array({"192.0.2.0/24", "3fff::/20"}); }
    Pod add_refused(const Json &keys) override {
        Json config = lab_->node().config(with_attach(keys));
        config["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
        auto container = lab_->node().container();
        auto chain = std::make_shared<Chain>(lab_->node(), std::vector<Json>{config}, "1.0.0", "second");
        (void)succeeded(chain->add(*container));
        Pod pod = observe(lab_->node(), std::move(container));
        pod.chain = std::move(chain);
        return refused_.emplace_back(std::move(pod));
    }

  private:
    std::vector<Pod> refused_;
};

TEST_P(IsolatedByNetworkOnVeths, NothingOfOthersArrives) { let_in_only_conversations(); }

INSTANTIATE_TEST_SUITE_P(All, IsolatedByNetworkOnVeths, testing::Values(LabParameter{"tcx"}, LabParameter{"clsact"}),
                         [](const auto &info) { return info.param.attach; });

} // namespace
} // namespace podlane::test
