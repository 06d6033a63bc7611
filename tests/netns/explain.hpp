// SPDX-License-Identifier: MIT
// podlanectl explain beside the real packet: asks about a frame, sends it, and compares the prediction with what is
// counted and what arrives.
#pragma once

#include "tests/netns/lab.hpp"

namespace podlane::test {

// Interface (empty: of no endpoint) and reason.
using Counting = std::pair<std::string, std::string>;

// A frame on its way into a program.
struct Sent {
    std::string at;   // the interface of the node
    bool out = false; // by the host stack, on the way out of it
    const Wire &from;
    Bytes frame{};
};

// Where it is to arrive, and how it is known there.
struct Arrival {
    const Wire *at = nullptr; // nowhere
    std::function<bool(const Bytes &)> is{};
};

class Asker {
  public:
    explicit Asker(const Node &node) : node_(node) {}

    [[nodiscard]] Output ctl(const std::vector<std::string> &arguments) const { return node_.podlanectl(arguments); }
    [[nodiscard]] Json explain(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), {"explain", "--json"});
        const Output output = ctl(arguments);
        if (output.rc != 0)
            throw std::runtime_error(output.err);
        return Json::parse(output.out);
    }
    [[nodiscard]] Json explain(const Sent &sent) const {
        std::vector<std::string> arguments{"--from", sent.at, "--frame", hex(sent.frame)};
        if (sent.out)
            arguments.emplace_back("--out");
        return explain(arguments);
    }
    [[nodiscard]] std::map<Counting, std::uint64_t> counts() const {
        std::map<Counting, std::uint64_t> all;
        for (const Json &one : Json::parse(ctl({"--json", "counter", "list"}).out))
            all[counting_of(one, "host_interface")] = one.at("packets");
        return all;
    }
    [[nodiscard]] std::size_t path_count() const {
        return require(require(open_paths(node_.bpffs(), Access::read_only)).entries()).size();
    }
    // The reasons that the answer predicts, program by program.
    [[nodiscard]] static std::set<Counting> predicted_by(const Json &answer) {
        std::set<Counting> predicted;
        for (const Json &run : answer)
            for (const Json &one : run.at("counted"))
                predicted.insert(counting_of(one, "interface"));
        return predicted;
    }

    // Asks, sends, and compares. `why` is what is counted where the packet enters.
    void compare(const std::string &name, const Sent &sent, reason why, const Arrival &arrival,
                 const std::vector<const Wire *> &others) {
        SCOPED_TRACE(name);
        const std::size_t paths = path_count();
        const auto untouched = counts();
        const Json answer = explain(sent);
        EXPECT_EQ(path_count(), paths) << "a question is cached";
        EXPECT_EQ(answer.at(0).at("reason"), std::string(kReasons[why].name)) << answer.dump(1);
        const std::set<Counting> predicted = predicted_by(answer);
        for (const Wire *wire : others)
            wire->forget();
        if (arrival.at != nullptr)
            arrival.at->forget();
        const auto before = counts();
        sent.from.send(sent.frame);
        EXPECT_TRUE(wait_until([&] { return all_moved(predicted, before, counts()); })) << answer.dump(1);
        expect_arrival(answer.back().at("verdict"), arrival, others);
        for (const Counting &one : predicted)
            proven_.insert(one.second);
        verdicts_.insert(answer.back().at("verdict"));
    }

    std::set<std::string> proven_{}; // reasons that were predicted, and then counted
    std::set<std::string> verdicts_{};

  private:
    static Counting counting_of(const Json &one, const char *interface) {
        return {one.at(interface).is_null() ? "" : one.at(interface).get<std::string>(), one.at("reason")};
    }
    static std::uint64_t count_in(const std::map<Counting, std::uint64_t> &all, const Counting &one) {
        return all.contains(one) ? all.at(one) : 0;
    }
    static bool all_moved(const std::set<Counting> &predicted, const std::map<Counting, std::uint64_t> &before,
                          const std::map<Counting, std::uint64_t> &now) {
        return std::ranges::all_of(predicted,
                                   [&](const Counting &one) { return count_in(now, one) > count_in(before, one); });
    }
    static void expect_arrival(const std::string &verdict, const Arrival &arrival,
                               const std::vector<const Wire *> &others) {
        if (arrival.at != nullptr) {
            EXPECT_NE(verdict, "dropped");
            EXPECT_TRUE(arrival.at->until(arrival.is, patience())) << "does not arrive";
            return;
        }
        EXPECT_NE(verdict, "redirected");
        for (const Wire *wire : others)
            EXPECT_FALSE(wire->until(arrival.is, quiet())) << "arrives";
    }

    const Node &node_;
};

// Empty if a test is to be run on hooks of this kind here.
inline std::string why_not_by(const std::string &hook) {
    if (hook == "tcx" && !kernel_can_tcx())
        return "this kernel has no tcx";
    return hook == "clsact" && kernel_can_tcx() && slow() ? "left to kernels without tcx, as time is short" : "";
}

} // namespace podlane::test
