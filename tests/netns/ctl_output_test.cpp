// SPDX-License-Identifier: MIT
// Properties of every command that reads: JSON, --watch, selection, a table that fits the terminal, and one clear
// sentence if it cannot read.
#include "tests/netns/reading.hpp"
#include "tests/harness/environment.hpp"

#include "tools/podlanectl/views/selection.hpp"

namespace podlane::test {
namespace {

class OutputTest : public CtlTest {
  protected:
    // In a terminal of this many columns, as script(1) makes one.
    [[nodiscard]] std::string on_terminal(const std::string &command, int columns) const {
        std::string line = "stty cols " + std::to_string(columns) + "; exec";
        for (const std::string &word : ctl_argv(node_.bpffs(), command))
            line += " '" + word + "'";
        return run(node_.ns(), {"script", "-qec", line, "/dev/null"}).out;
    }
    // The output until it is interrupted, after `seconds`.
    [[nodiscard]] Output watched(const std::string &command) const {
        std::vector<std::string> argv = {"timeout", "-s", "INT", "3"};
        for (const std::string &word : ctl_argv(node_.bpffs(), command + " --watch"))
            argv.push_back(word);
        argv.insert(argv.begin() + 1, "--preserve-status");
        return run(node_.ns(), argv);
    }
};

std::size_t width_without_colour(std::string line) {
    std::size_t width = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\033') {
            i = line.find_first_of("mKHJ", i);
            continue;
        }
        const auto byte = static_cast<unsigned char>(line[i]);
        width += byte >= 0x20 && (byte & 0xc0U) != 0x80U ? 1 : 0;
    }
    return width;
}

// Why a command that reads has not what every other one has.
struct Lack {
    std::string_view command;
    std::string_view what;
    std::string_view because;
};
constexpr std::array kLacks = {
    Lack{"bandwidth groups", "selection", "limits that pods share are a network's"},
    Lack{"metrics", "json", "its format is Prometheus's"},
    Lack{"metrics", "watch", "--listen serves it again and again"},
    Lack{"monitor", "watch", "it goes on by itself"},
    Lack{"top", "watch", "it goes on by itself"},
    Lack{"version", "watch", "a program's version does not change"},
    Lack{"version", "selection", "it is about no endpoint"},
};

TEST(Reading, EveryCommandHasJsonWatchAndSelection) {
    std::set<std::string> lacking;
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        const auto look = [&](const char *what, ctl::Opts options) {
            for (const ctl::Option &option : ctl::options())
                if (options.has(option.id) && !command.options.has(option.id))
                    lacking.insert(spelled(noun, command) + ": " + what);
        };
        look("json", {ctl::Opt::json});
        look("watch", {ctl::Opt::watch});
        look("selection", ctl::kSelect);
    });
    std::set<std::string> justified;
    for (const Lack &lack : kLacks)
        justified.insert(std::string(lack.command) + ": " + std::string(lack.what));
    EXPECT_EQ(lacking, justified);
}

TEST_F(OutputTest, ProgramListShowsWhereTheyAreAndWhatTheyCost) {
    const Pod made = make(Json::object(), named("shop", "web-0"));
    const Json all = ctl_json("program list");
    ASSERT_EQ(all.size(), 5U) << all.dump(1);
    EXPECT_EQ(find(all, "name", "pl_pace").at("hook"), "cgroup");
    const Json from_pod = find(all, "name", "pl_from_pod");
    EXPECT_THAT(from_pod, has_members({{"interface", made.host_ifname},
                                       {"pod", "shop/web-0"},
                                       {"direction", "ingress"},
                                       {"hook", kernel_can_tcx() ? "tcx" : "clsact"},
                                       {"pinned", true}}));
    const auto ours = programs(made.ifindex, Hook::ingress);
    EXPECT_EQ(from_pod.at("id"), ours.at(0).program_id);
    EXPECT_EQ(from_pod.at("tag").get<std::string>().size(), 16U);
    EXPECT_EQ(find(all, "name", "pl_to_uplink").at("interface"), "up0");
    EXPECT_EQ(ctl_json("program list shop/web-0").size(), 2U);
    if (kernel_can_tcx()) {
        const Pod tcx = make({{"attach", "tcx"}});
        EXPECT_EQ(ctl_json("program list --container " + tcx.container->id()).at(1).at("hook"), "tcx");
    }
}

TEST_F(OutputTest, ProgramsThatAreNowhereAreListedAsWell) {
    const Pod made = make({{"fastPath", "off"}});
    const Json all = ctl_json("program list");
    EXPECT_EQ(find(all, "name", "pl_to_uplink").at("interface"), nullptr);
    EXPECT_EQ(all.size(), 5U);
}

// Two pods that have nothing in common: no namespace, network, uplink, nor anything of their own.
class TwoPods : public OutputTest {
  protected:
    TwoPods() {
        node_.run("ip link add up1 type veth peer name up1-peer");
        node_.run("ip link set up1 up");
        web_ = make_in("pods", "up0", "8", named("shop", "web-0"));
        db_ = make_in("storenet", "up1", "9", named("store", "db-0"));
        for (const Pod &made : {web_, db_}) {
            const path_key flow{made.ifindex, made.v4, require(parse_ip("192.0.2.77")), 1, 2, 17, {}};
            const flow_path path{1, PATH_HOST, 0};
            require(open(&open_paths).update(flow, path));
            kept_paths kept{};
            kept.paths[0] = {flow, 0, path};
            require(open(&open_kept_paths).update(made.ifindex, kept));
        }
    }
    Pod make_in(const std::string &network, const std::string &uplink, const std::string &range, const Variables &who) {
        const Json range4 = {{"subnet", "198.18." + range + ".0/24"}};
        const Json range6 = {{"subnet", "2001:db8:" + range + "::/64"}};

        return make({{"name", network},
                     {"uplinks", {uplink}},
                     {"clusterCIDRs", {"198.18.0.0/16"}},
                     {"ipam",
                      {{"type", "host-local"},
                       {"dataDir", node_.leases()},
                       {"ranges", {Json::array({range4}), Json::array({range6})}}}},
                     {"allowedSources", {"192.0.2.0/24"}},
                     {"groups", {"namespace"}},
                     {"ingressRate", 8000000},
                     {"ingressBurst", 8000000}},
                    who);
    }
    // By which a reader would know that it is about the pod.
    static std::vector<std::string> marks_of(const Pod &made, const std::string &pod, const std::string &network) {
        return {pod, network, made.host_ifname, made.text4(), made.text6(), made.container->id()};
    }
    [[nodiscard]] bool shows_db(const std::string &text) const {
        return std::ranges::any_of(marks_of(db_, "db-0", "storenet"),
                                   [&](const auto &mark) { return text.find(mark) != std::string::npos; });
    }
    Pod web_, db_;
};

// Each command is asked by every way there is to say who, and shows no other pod.
TEST_F(TwoPods, EverySelectionIsObeyedByEveryCommand) {
    const std::vector<std::string> ways = {"--pod shop/web-0",
                                           "--namespace shop",
                                           "--container " + web_.container->id().substr(0, 12),
                                           "--address " + web_.text6(),
                                           "--interface " + web_.host_ifname,
                                           "--network pods",
                                           "--network pods --pod web-0"};
    std::size_t asked = 0;
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        if (!command.options.has(ctl::Opt::pod) || noun.name == "monitor") // which has a test of its own
            return;
        std::vector<std::string> all = ways;
        if (command.argument.name == "WHICH")
            all.insert(all.end(), {"web-0", web_.text4()});
        std::string call = spelled(noun, command);
        call += noun.name == "explain"  ? " --to 198.51.100.9"
                : command.verb == "get" ? " interfaces"
                                        : needed_words(noun, command);
        call += command.options.has(ctl::Opt::json) ? " --json" : "";
        for (const std::string &way : all) {
            const Output output = ctl(call + " " + way);
            EXPECT_EQ(output.rc, 0) << call << " " << way << ": " << output.err << output.out;
            EXPECT_FALSE(shows_db(output.out)) << call << " " << way << ": " << output.out;
            EXPECT_TRUE(noun.name == "doctor" || output.out != "[]\n") << call << " " << way;
            ++asked;
        }
        for (const char *nobody : {"--pod cart-9", "--namespace none", "--container 0000", "--address 192.0.2.99",
                                   "--interface cali0", "--network none"})
            EXPECT_EQ(ctl(call + " " + nobody).rc,
                      noun.name == "metrics" || noun.name == "history" || noun.name == "top" ? 0 : 1)
                << call << " " << nobody;
    });
    EXPECT_GT(asked, 150U);
}

TEST_F(TwoPods, EveryMapsEntriesAreSelected) {
    for (const std::string_view map : kMapNames) {
        const std::string dump = "map dump " + std::string(map) + " --json";
        EXPECT_FALSE(shows_db(ctl(dump + " --pod web-0").out)) << map;
        const bool of_nobody = map == PODLANE_MAP_WATCH || map == PODLANE_MAP_EVENTS || map == PODLANE_MAP_EXEMPT ||
                               map == PODLANE_MAP_GROUP_CIDRS || map == PODLANE_MAP_LIMIT_GROUPS;
        if (map == PODLANE_MAP_SOURCE_ROUTES || map == PODLANE_MAP_SOURCE_SLOTS || map == PODLANE_MAP_FLOWS ||
            map == PODLANE_MAP_FORWARDED || map == PODLANE_MAP_COUNTERS)
            continue; // perhaps nothing was sent yet, and nothing by an egress route of its own
        EXPECT_EQ(shows_db(ctl(dump + " --pod db-0").out), !of_nobody) << ctl(dump + " --pod db-0").out;
    }
    EXPECT_EQ(ctl_json("uplink list --interface up0").size(), 1U);
    EXPECT_EQ(ctl_json("uplink list --network storenet").at(0).at("interface"), "up1");
}

// The documentation's rows of a command.
std::string documented_fields(const std::string &command) {
    std::ifstream file(source_path("docs/PODLANECTL.md"));
    bool in_section = false;
    std::string before, found;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## "))
            in_section = line == "## JSON";
        const std::size_t cell = line.find(" | ");
        if (!in_section || !line.starts_with("| `") || cell == std::string::npos)
            continue;
        const std::string fields = line.substr(cell);
        if (line.substr(0, cell).find("`" + command + "`") != std::string::npos)
            found += fields.starts_with(" | those") ? before + fields : fields;
        before = fields.starts_with(" | those") ? before + fields : fields;
    }
    return found;
}

TEST_F(TwoPods, EveryFieldIsDocumented) {
    const auto compare = [&](const std::string &command, const std::string &row) {
        const Json json = ctl_json(command);
        const std::string fields = documented_fields(row);
        EXPECT_NE(fields, "") << row;
        std::size_t seen = 0;
        for (const Json &one : json.is_array() ? json : Json::array({json}))
            for (const auto &[name, value] : one.items()) {
                EXPECT_THAT(fields, HasSubstr("`" + name + "`")) << row;
                ++seen;
            }
        EXPECT_TRUE(seen > 0 || command == "bandwidth groups" || command.starts_with("doctor") ||
                    command.starts_with("map dump"))
            << command;
    };
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        if (!command.options.has(ctl::Opt::json) || noun.name == "monitor" || noun.name == "map")
            return;
        const bool which = command.argument.name == "WHICH" && noun.name != "doctor";
        compare(spelled(noun, command) + (which ? " web-0" : "") +
                    (noun.name == "explain" ? " --from web-0 --to 198.51.100.9" : ""),
                spelled(noun, command));
    });
    compare("map list", "map list");
    compare("counter list --reasons", "counter list --reasons");
    for (const std::string_view map : kMapNames)
        if (map != PODLANE_MAP_EVENTS)
            compare("map dump " + std::string(map), "map dump " + std::string(map.substr(0, map.rfind("_v"))));
}

TEST_F(OutputTest, EveryReadingCommandHasJson) {
    const Pod web = make(Json::object(), named("shop", "web-0"));
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        if (!command.options.has(ctl::Opt::json) || noun.name == "monitor") // a stream
            return;
        const std::string words = asked_of_web(noun, command);
        EXPECT_TRUE(ctl_json(words).is_structured()) << words;
    });
}

TEST_F(OutputTest, WatchPrintsAgainUntilInterrupted) {
    const Pod made = make(Json::object(), named("shop", "web-0"));
    const Output list = watched("endpoint list");
    EXPECT_EQ(list.rc, 0) << list.err;
    std::size_t times = 0;
    for (std::size_t at = 0; (at = list.out.find("shop/web-0", at)) != std::string::npos; ++at)
        ++times;
    EXPECT_GE(times, 2U) << list.out;
}

TEST_F(OutputTest, WatchedCountersHaveRates) {
    const Pod made = make(Json::object(), named("shop", "web-0"));
    std::thread talk([&] { (void)run(made.container->ns(), {"ping", "-q", "-i", "0.05", "-c", "80", "203.0.113.2"}); });
    const Output output = watched("counter list");
    talk.join();
    EXPECT_EQ(output.rc, 0);
    EXPECT_THAT(output.out, has_all({"PACKETS/S", "kbit/s"}));
    EXPECT_THAT(ctl("counter list").out, testing::Not(HasSubstr("PACKETS/S")));
}

TEST_F(OutputTest, TablesFitTheTerminalAndHaveColourOnlyThere) {
    (void)make(Json::object(), named("a-namespace-with-a-long-name", "a-pod-with-a-very-long-name-indeed-0123456789"));
    for (const char *command :
         {"endpoint list", "program list", "map list", "network list", "uplink list", "history"}) {
        EXPECT_THAT(ctl(command).out, testing::Not(HasSubstr("\033["))) << command;
        const std::string shown = on_terminal(command, 80);
        EXPECT_THAT(shown, HasSubstr("\033[")) << command;
        std::istringstream lines(shown);
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(width_without_colour(line), 80U) << command << ": " << line;
    }
}

TEST_F(OutputTest, AFindingWrapsOnTheTerminal) {
    const Pod made = make();
    on_node("ip link set " + made.host_ifname + " down");
    const std::string shown = on_terminal("doctor", 60);
    std::istringstream lines(shown);
    for (std::string line; std::getline(lines, line);)
        EXPECT_LE(width_without_colour(line), 60U) << line;
    EXPECT_THAT(shown, HasSubstr("doctor --fix"));
}

// More than one buffer as well, of which the last may be written.
TEST_F(OutputTest, WhatCannotBeWrittenIsAnError) {
    (void)make(Json::object(), named("shop", "web-0"));
    const std::string on_node = " --bpffs " + node_.bpffs();
    for (const std::string &command :
         {std::string(), std::string("--help"), std::string("endpoint --help"), std::string("man"),
          std::string("completion bash"), "metrics" + on_node, "endpoint list --json" + on_node,
          "map dump history --json" + on_node, "endpoint list --watch" + on_node})
        EXPECT_THAT(run(node_.ns(), {"sh", "-c", "exec " + variable("PODLANECTL_BIN") + " " + command + " >/dev/full"}),
                    complains(1, {"writing to standard output: No space left on device"}))
            << command;
}

// Without the right to read, the error names what is missing and how to get it.
TEST_F(OutputTest, NotRootIsOneSentenceAndARemedy) {
    (void)make();
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands) {
            if (!command.options.has(ctl::Opt::bpffs) || noun.name == "version" || noun.name == "install" ||
                noun.name == "metrics")
                continue;
            std::vector<std::string> argv = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
            const std::string argument = command.argument.name == "INTERFACE" ? " up0" : needed_words(noun, command);
            const bool needs_which = command.verb == "show";
            const bool flush = noun.name == "path" && command.verb == "flush";
            for (const std::string &word :
                 ctl_argv(node_.bpffs(), std::string(noun.name) + " " + std::string(command.verb) + argument +
                                             (needs_which ? " web-0" : "") + (flush ? " --all" : "")))
                argv.push_back(word);
            const Output output = run(node_.ns(), argv);
            const std::string name = spelled(noun, command);
            EXPECT_EQ(output.rc, 1) << name;
            EXPECT_THAT(output.err, has_all({"no permission", "hint: run it as root"})) << name;
            EXPECT_THAT(output.err, HasSubstr("sudo podlanectl " + std::string(noun.name))) << name;
            EXPECT_EQ(std::ranges::count(output.err, '\n'), 2) << name << ": " << output.err;
        }
}

// The output about a problem, wherever a command has its place for it: monitor and the like do not begin.
std::string said(const Output &output) { return output.err + output.out; }

TEST_F(OutputTest, WithoutABpffsItSaysHowToMountOne) {
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        if (noun.name == "version" || noun.name == "metrics") // which are well without
            return;
        std::vector<std::string> argv = words(asked_of_web(noun, command) + " --bpffs /tmp/podlane");
        argv.insert(argv.begin(), std::getenv("PODLANECTL_BIN"));
        const Output output = run(node_.ns(), argv);
        const std::string name = spelled(noun, command);
        EXPECT_EQ(output.rc, 1) << name;
        EXPECT_THAT(said(output), has_all({"no bpffs is mounted at /tmp/podlane", "mount -t bpf"})) << name;
    });
}

TEST_F(OutputTest, MapsOfANewerVersionAreNamed) {
    const Pod made = make(Json::object(), named("shop", "web-0"));
    for (const std::string_view map : kMapNames) {
        const std::string path = pin_path(node_.bpffs(), map);
        const std::string newer = path.substr(0, path.rfind("_v")) + "_v9";
        std::filesystem::rename(path, newer);
    }
    each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
        if (noun.name == "version")
            return;
        const Output output = ctl(asked_of_web(noun, command));
        const std::string name = spelled(noun, command);
        EXPECT_EQ(output.rc, 1) << name << said(output);
        EXPECT_THAT(said(output), HasSubstr("_v9")) << name;
        EXPECT_THAT(said(output), testing::ContainsRegex("podlanectl")) << name;
    });
}

} // namespace
} // namespace podlane::test
