// What holds for every command that reads: JSON, --watch, selection, a table that fits the terminal, and one clear
// sentence where it cannot read.
#include "tests/netns/ctl.hpp"

#include "tools/podlanectl/cli.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace podlane::test {
namespace {

using testing::HasSubstr;

class LookTest : public CtlTest {
  protected:
    // In a terminal of this many columns, as script(1) makes one.
    [[nodiscard]] std::string on_terminal(const std::string &command, int columns) const {
        std::string line = "stty cols " + std::to_string(columns) + "; exec";
        for (const std::string &word : ctl_argv(node_.bpffs(), command))
            line += " '" + word + "'";
        return run(node_.ns(), {"script", "-qec", line, "/dev/null"}).out;
    }
    // What it prints until it was interrupted, after `seconds`.
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

// What a command cannot do without, besides WHICH.
std::string needed_words(const ctl::Noun &noun, const ctl::Command &command) {
    if (noun.name == "explain")
        return " --from web-0 --to 198.51.100.9";
    if (noun.name == "bandwidth" && command.verb == "set")
        return " web-0 --egress 10M";
    if (noun.name == "bandwidth" && command.verb == "clear")
        return " web-0";
    return "";
}

TEST_F(LookTest, ProgramListShowsWhereTheyAreAndWhatTheyCost) {
    const Made made = make(Json::object(), named("shop", "web-0"));
    const Json all = ctl_json("program list");
    ASSERT_EQ(all.size(), 5U) << all.dump(1);
    EXPECT_EQ(find(all, "name", "pl_pace").at("hook"), "cgroup");
    const Json from_pod = find(all, "name", "pl_from_pod");
    EXPECT_EQ(from_pod.at("interface"), made.host_ifname);
    EXPECT_EQ(from_pod.at("pod"), "shop/web-0");
    EXPECT_EQ(from_pod.at("direction"), "ingress");
    EXPECT_EQ(from_pod.at("hook"), "clsact");
    EXPECT_EQ(from_pod.at("pinned"), true);
    const auto ours = programs(made.ifindex, Hook::ingress);
    EXPECT_EQ(from_pod.at("id"), ours.at(0).program_id);
    EXPECT_EQ(from_pod.at("tag").get<std::string>().size(), 16U);
    EXPECT_EQ(find(all, "name", "pl_to_uplink").at("interface"), "up0");
    EXPECT_EQ(ctl_json("program list shop/web-0").size(), 2U);
    if (kernel_can_tcx()) {
        const Made tcx = make({{"attach", "tcx"}});
        EXPECT_EQ(ctl_json("program list --container " + tcx.container->id()).at(1).at("hook"), "tcx");
    }
}

TEST_F(LookTest, ProgramsThatAreNowhereAreListedAsWell) {
    const Made made = make({{"fastPath", "off"}});
    const Json all = ctl_json("program list");
    EXPECT_EQ(find(all, "name", "pl_to_uplink").at("interface"), nullptr);
    EXPECT_EQ(all.size(), 5U);
}

// Each is asked by every way there is to say who.
TEST_F(LookTest, EverySelectionFindsThePod) {
    const Made web = make(Json::object(), named("shop", "web-0"));
    const Made db = make(Json::object(), named("store", "db-0"));
    ASSERT_TRUE(ping(web.container->ns(), db.v4));
    for (const char *command : {"endpoint list", "endpoint show", "counter list", "path list", "source list",
                                "source show", "program list", "history list", "network list"}) {
        const std::size_t own = ctl_json(std::string(command) + " web-0").size();
        EXPECT_GT(own, 0U) << command;
        for (const std::string &by :
             {std::string("--pod shop/web-0"), std::string("--namespace shop"), "--container " + web.container->id(),
              "--address " + web.v6, "--interface " + web.host_ifname, std::string("--network pods --pod web-0")})
            EXPECT_EQ(ctl_json(std::string(command) + " " + by).size(), own) << command << " " << by;
    }
    EXPECT_EQ(ctl_json("doctor web-0"), Json::array());
    EXPECT_EQ(ctl_json("uplink list --interface up0").size(), 1U);
    EXPECT_EQ(ctl_json("uplink list --network other").size(), 0U);
    EXPECT_EQ(ctl_json("network list --network pods").size(), 1U);
}

TEST_F(LookTest, EveryReadingCommandHasJson) {
    const Made web = make(Json::object(), named("shop", "web-0"));
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands) {
            if (!command.options.has(ctl::Opt::json) || command.writes || noun.name == "monitor") // a stream
                continue;
            const std::string argument = !command.argument.name.empty() && command.argument.name == "MAP" ? " paths"
                                         : command.argument.name.empty()                                  ? ""
                                                                                                          : " web-0";
            const std::string words =
                std::string(noun.name) + " " + std::string(command.verb) + argument + needed_words(noun, command);
            EXPECT_TRUE(ctl_json(words).is_structured()) << words;
        }
}

TEST_F(LookTest, WatchPrintsAgainUntilInterrupted) {
    const Made made = make(Json::object(), named("shop", "web-0"));
    const Output list = watched("endpoint list");
    EXPECT_EQ(list.rc, 0) << list.err;
    std::size_t times = 0;
    for (std::size_t at = 0; (at = list.out.find("shop/web-0", at)) != std::string::npos; ++at)
        ++times;
    EXPECT_GE(times, 2U) << list.out;
}

TEST_F(LookTest, WatchedCountersHaveRates) {
    const Made made = make(Json::object(), named("shop", "web-0"));
    std::thread talk([&] { (void)run(made.container->ns(), {"ping", "-q", "-i", "0.05", "-c", "80", "203.0.113.2"}); });
    const Output output = watched("counter list");
    talk.join();
    EXPECT_EQ(output.rc, 0);
    EXPECT_THAT(output.out, HasSubstr("PACKETS/S"));
    EXPECT_THAT(output.out, HasSubstr("kbit/s"));
    EXPECT_THAT(ctl("counter list").out, testing::Not(HasSubstr("PACKETS/S")));
}

TEST_F(LookTest, TablesFitTheTerminalAndHaveColourOnlyThere) {
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

TEST_F(LookTest, AFindingWrapsOnTheTerminal) {
    const Made made = make();
    on_node("ip link set " + made.host_ifname + " down");
    const std::string shown = on_terminal("doctor", 60);
    std::istringstream lines(shown);
    for (std::string line; std::getline(lines, line);)
        EXPECT_LE(width_without_colour(line), 60U) << line;
    EXPECT_THAT(shown, HasSubstr("doctor --fix"));
}

// Whoever has no right to read is told so, and how to get it.
TEST_F(LookTest, NotRootIsOneSentenceAndARemedy) {
    (void)make();
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands) {
            if (!command.options.has(ctl::Opt::bpffs) || noun.name == "version" || noun.name == "install" ||
                noun.name == "metrics")
                continue;
            std::vector<std::string> argv = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
            const std::string argument = command.argument.name == "MAP" || command.argument.name == "INTERFACE"
                                             ? " paths"
                                             : needed_words(noun, command);
            const bool needs_which = command.verb == "show";
            const bool flush = noun.name == "path" && command.verb == "flush";
            for (const std::string &word :
                 ctl_argv(node_.bpffs(), std::string(noun.name) + " " + std::string(command.verb) + argument +
                                             (needs_which ? " web-0" : "") + (flush ? " --all" : "")))
                argv.push_back(word);
            const Output output = run(node_.ns(), argv);
            const std::string spelled = std::string(noun.name) + " " + std::string(command.verb);
            EXPECT_EQ(output.rc, 1) << spelled;
            EXPECT_THAT(output.err, HasSubstr("no permission")) << spelled;
            EXPECT_THAT(output.err, HasSubstr("hint: run it as root")) << spelled;
            EXPECT_EQ(std::ranges::count(output.err, '\n'), 2) << spelled << ": " << output.err;
        }
}

TEST_F(LookTest, WithoutABpffsItSaysHowToMountOne) {
    for (const char *command :
         {"endpoint", "counter", "program", "history", "path", "map", "network", "uplink", "source", "gc --dry-run"}) {
        std::vector<std::string> argv = words(std::string(command) + " --bpffs /tmp/podlane");
        argv.insert(argv.begin(), std::getenv("PODLANECTL_BIN"));
        const Output output = run(node_.ns(), argv);
        EXPECT_EQ(output.rc, 1) << command;
        EXPECT_THAT(output.err, HasSubstr("no bpffs is mounted at /tmp/podlane\nhint: mount it")) << command;
    }
}

TEST_F(LookTest, MapsOfANewerVersionAreNamed) {
    (void)make();
    for (const std::string_view map : kMapNames) {
        const std::string path = pin_path(node_.bpffs(), map);
        const std::string newer = path.substr(0, path.rfind("_v")) + "_v9";
        std::filesystem::rename(path, newer);
    }
    for (const char *command : {"endpoint", "counter", "program", "history", "path", "network", "uplink", "source"}) {
        const Output output = ctl(command);
        EXPECT_EQ(output.rc, 1) << command;
        EXPECT_THAT(output.err, HasSubstr("_v9: use the podlanectl that came with the podlane in use")) << command;
    }
}

} // namespace
} // namespace podlane::test
