// SPDX-License-Identifier: MIT
// Faults at an ADD or a DEL of one of a container's interfaces: once it is deleted, the others are as they were before.
#include "loader/record.hpp"
#include "tests/harness/frame.hpp"
#include "tests/netns/fault.hpp"

#include <numeric>

namespace podlane::test {
namespace {

class FaultPeersTest : public CtlTest {
  protected:
    FaultPeersTest() {
        make_others();
        must("ADD", "net2"); // programs and maps are loaded, the network has been there
        must("DEL", "net2");
        before_ = everything();
    }

    // Each interface is in a network of its own.
    [[nodiscard]] Json config_of(const std::string &ifname) const {
        const std::string number = std::to_string(20 + ifname.back() - '0');
        Json config = node_.config({{"name", "network-of-" + ifname}});
        config["ipam"]["ranges"] = {{{{"subnet", "198.18." + number + ".0/24"}}},
                                    {{{"subnet", "2001:db8:" + number + "::/64"}}}};
        if (are_grouped_)
            config.merge_patch({{"groups", {"name:of-" + ifname}}, {"isolation", "group"}});
        return config;
    }
    // Run by strace with these options if there are any.
    [[nodiscard]] Reply call(const std::string &command, const std::string &ifname,
                             const std::vector<std::string> &options = {}) const {
        std::vector<std::string> argv;
        if (!options.empty())
            argv = {"strace", "-qq", "-e", "trace=bpf"};
        argv.insert(argv.end(), options.begin(), options.end());
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(*container_, ifname);
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}});
        return to_reply(run(node_.ns(), argv, config_of(ifname).dump(), variables));
    }
    void must(const std::string &command, const std::string &ifname) const {
        ASSERT_THAT(call(command, ifname), succeeds()) << command << " of " << ifname;
    }
    void make_others() const {
        must("ADD", "eth0");
        must("ADD", "net1");
    }
    [[nodiscard]] static std::vector<std::string> inject(const std::string &what) {
        return {"-o", "/dev/null", "-e", "inject=bpf:" + what};
    }
    // The numbers of the calls of bpf(2) that do this, in a run that nothing hits.
    [[nodiscard]] std::vector<int> calls_of(const std::string &command, const std::string &what = {}) const {
        const std::string file = node_.dir() + "/trace";
        EXPECT_THAT(call(command, "net2", {"-o", file}), succeeds());
        std::vector<int> numbers;
        int number = 0;
        std::ifstream trace(file);
        for (std::string line; std::getline(trace, line);)
            if (line.starts_with("bpf(") && (++number, line.starts_with("bpf(" + what)))
                numbers.push_back(number);
        EXPECT_FALSE(numbers.empty());
        return numbers;
    }

    template <typename T> static std::string hex_of(const T &value) {
        return hex(
            {reinterpret_cast<const std::uint8_t *>(&value), reinterpret_cast<const std::uint8_t *>(&value + 1)});
    }
    template <typename Table> static std::string text_of(const std::string &name, const Table &table) {
        std::set<std::string> lines;
        for (const auto &[key, value] : require(table.entries()))
            lines.insert(name + " " + hex_of(key) + " " + hex_of(value) + "\n");
        return std::accumulate(lines.begin(), lines.end(), std::string());
    }
    // Every byte of the maps and records, but for when an isolation was written.
    [[nodiscard]] std::string everything() const {
        const Tables tables = require(Tables::open(node_.bpffs()));
        std::string text = node_.state() + text_of("endpoint", tables.endpoints) +
                           text_of("interface", tables.interfaces) + text_of("address", tables.addresses) +
                           text_of("sender", tables.senders) + text_of("route", tables.source_routes) +
                           text_of("slot", tables.source_slots);
        for (auto [ifindex, entry] : require(tables.isolations.entries())) {
            entry.since_ns = 0;
            text += "isolation " + std::to_string(ifindex) + " " + hex_of(entry) + "\n";
        }
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        for (const std::string &name : node_.records())
            text += name + " " + std::to_string(fnv1a_64(read_file(records.directory() + "/" + name))) + "\n";
        return text;
    }
    void expect_before(const std::string &before) const {
        std::string now;
        (void)wait_until([&] { return (now = everything()) == before; });
        EXPECT_EQ(now, before);
    }

    std::shared_ptr<Container> container_ = node_.container();
    std::string before_;
    bool are_grouped_ = false;
};

// At each deletion from a map: what is left of it must be enough for the next DEL.
TEST_F(FaultPeersTest, ADelThatIsRepeatedLeavesTheOthersWhole) {
    bool is_hit = false;
    must("ADD", "net2");
    for (const int number : calls_of("DEL", "BPF_MAP_DELETE_ELEM"))
        for (const std::string what : {"error=EIO", "signal=KILL"}) {
            SCOPED_TRACE(what + " at call " + std::to_string(number));
            must("ADD", "net2");
            is_hit |= call("DEL", "net2", inject(what + ":when=" + std::to_string(number))).rc != 0;
            must("DEL", "net2");
            expect_before(before_);
        }
    EXPECT_TRUE(is_hit);
}

// At each update of a map; with two errors, the second one hits what is rolled back.
TEST_F(FaultPeersTest, AnAddThatFailsOrIsKilledLeavesTheOthersWhole) {
    bool is_hit = false;
    const auto numbers = calls_of("ADD", "BPF_MAP_UPDATE_ELEM");
    must("DEL", "net2");
    for (const int number : numbers) {
        const std::string when = ":when=" + std::to_string(number);
        for (const std::string &fault :
             {"signal=KILL" + when, "error=EIO" + when + ".." + std::to_string(number + 2) + "+2"}) {
            SCOPED_TRACE(fault);
            is_hit |= call("ADD", "net2", inject(fault)).rc != 0;
            must("DEL", "net2");
            expect_before(before_);
        }
    }
    EXPECT_TRUE(is_hit);
}

// An ADD gives its groups to the others last: two errors hit that, and its rollback. The records say what is
// right.
TEST_F(FaultPeersTest, AFailedAddLeavesTheOthersTheirGroups) {
    are_grouped_ = true;
    const auto begin = [&] {
        container_ = node_.container();
        make_others();
    };
    const auto end = [&] {
        for (const char *ifname : {"net2", "net1", "eth0"})
            must("DEL", ifname);
    };
    begin();
    const int last = calls_of("ADD").back();
    end();
    for (int number = last - 14; number <= last; ++number)
        for (const int distance : {1, 2, 3}) {
            const std::string step = std::to_string(distance),
                              when = std::to_string(number) + ".." + std::to_string(number + distance) + "+" + step;
            SCOPED_TRACE(when);
            begin();
            const std::string before = everything();
            const Reply reply = call("ADD", "net2", inject("error=EIO:when=" + when));
            must("DEL", "net2");
            if (reply.rc != 0) // what an ADD has given stays
                expect_before(before);
            end();
        }
}

} // namespace
} // namespace podlane::test
