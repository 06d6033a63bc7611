// SPDX-License-Identifier: MIT
// The command line: abbreviations, options, errors with a suggestion, and help from the same table.
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/install_options.hpp"
#include "tests/harness/test.hpp"

#include <regex>

namespace podlane::ctl {
namespace {

Result<Call> parse_words(std::vector<std::string_view> words) { return parse(words); }

std::string spelled(const Result<Call> &call) {
    if (!call)
        return "error: " + call.error().message;
    const std::string noun = call->noun == nullptr ? "" : std::string(call->noun->name);
    const std::string verb = call->command == nullptr ? "" : std::string(call->command->verb);
    return noun + (verb.empty() ? "" : " " + verb) + (call->help ? " help" : "");
}

TEST(Parse, list_is_the_default_verb) { EXPECT_EQ(spelled(parse_words({"endpoint"})), "endpoint list"); }

TEST(Parse, abbreviations_take_the_first_of_the_table) {
    EXPECT_EQ(spelled(parse_words({"e", "s", "web-0"})), "endpoint show");
    EXPECT_EQ(spelled(parse_words({"m", "d", "paths"})), "map dump");
    EXPECT_EQ(spelled(parse_words({"s"})), "status");
    EXPECT_EQ(spelled(parse_words({"ver"})), "version");
}

TEST(Parse, options_stand_anywhere_and_take_values_both_ways) {
    const auto call = parse_words({"--json", "endpoint", "--pod", "a", "list", "--network=blue", "-c", "0123"});
    ASSERT_TRUE(call) << call.error().message;
    EXPECT_TRUE(call->has(Opt::json));
    EXPECT_EQ(call->value(Opt::pod), "a");
    EXPECT_EQ(call->value(Opt::network), "blue");
    EXPECT_EQ(call->value(Opt::container), "0123");
    EXPECT_FALSE(call->has(Opt::address));
}

TEST(Parse, options_may_be_abbreviated_while_unique) {
    EXPECT_TRUE(parse_words({"version", "--js"})->has(Opt::json));
    const auto ambiguous = parse_words({"endpoint", "--n", "x"});
    ASSERT_FALSE(ambiguous);
    EXPECT_EQ(ambiguous.error().hint, "it could be one of --namespace --network --nodes --no-masquerade");
}

TEST(Parse, suggests_the_nearest) {
    EXPECT_EQ(parse_words({"endpiont"}).error().hint, "did you mean \"endpoint\"?");
    EXPECT_EQ(parse_words({"endpoint", "shwo"}).error().hint, "did you mean \"endpoint show\"?");
    EXPECT_EQ(parse_words({"endpoint", "--adress", "x"}).error().hint, "did you mean \"--address\"?");
    EXPECT_EQ(parse_words({"zzzzzz"}).error().hint,
              "objects: endpoint, counter, bandwidth, path, network, uplink, map, status, doctor, history, metrics, "
              "program, source, upgrade, explain, monitor, top, gc, repair, load, install, uninstall, version, "
              "completion, man, group, lease");
}

TEST(Parse, an_unknown_option_is_one_of_the_command) {
    EXPECT_EQ(parse_words({"bandwidth", "set", "web-0", "--frobnicate", "5"}).error().message,
              "unknown option --frobnicate");
    for (const std::vector<std::string_view> &words : {std::vector<std::string_view>{"version", "--frobnicate"},
                                                       {"--frobnicate", "version"},
                                                       {"version", "--frobnicate=5", "--adress"}})
        EXPECT_EQ(parse(words).error().hint, "options of version: json, bpffs, help");
    EXPECT_EQ(parse_words({"uplink", "sync", "--dry-rnu"}).error().hint, "options of uplink sync: json, bpffs, help")
        << "another command's would not help";
    EXPECT_EQ(parse_words({"uplink", "--frobnicate", "5"}).error().hint.substr(0, 28), "options of uplink list: pod,")
        << "5 may be its value";
    EXPECT_EQ(parse_words({"--adress", "x", "endpoint"}).error().hint, "did you mean \"--address\"?");
    EXPECT_EQ(parse_words({"--frobnicate"}).error().hint, "see podlanectl --help");
}

TEST(Parse, refuses_what_does_not_belong_together) {
    EXPECT_EQ(parse_words({"version", "--pod", "x"}).error().message, "version has no option --pod");
    EXPECT_EQ(parse_words({"map", "dump"}).error().message, "map dump needs MAP");
    EXPECT_EQ(parse_words({"map", "dump", "paths", "x"}).error().message,
              "map dump takes one argument, not also \"x\"");
    EXPECT_EQ(parse_words({"map", "list", "x", "y"}).error().message, "map list takes one argument, not also \"y\"");
    EXPECT_EQ(parse_words({"uplink", "sync", "x"}).error().message, "uplink sync takes no argument \"x\"");
    EXPECT_EQ(parse_words({"version", "x"}).error().message, "version takes no argument \"x\"");
    EXPECT_EQ(parse_words({"endpoint", "--pod"}).error().message, "option --pod needs a value: NAME");
    EXPECT_EQ(parse_words({"endpoint", "--pod="}).error().message, "option --pod has an empty value");
    EXPECT_EQ(parse_words({"endpoint", "--json=1"}).error().message, "option --json takes no value");
    for (const std::vector<std::string_view> &words : {std::vector<std::string_view>{"endpoint", "-p", "x", "--pod=y"},
                                                       {"--pod", "x", "endpoint", "list", "--pod", "x"}})
        EXPECT_EQ(parse(words).error().message, "option --pod is given twice");
    EXPECT_TRUE(parse_words({"endpoint", "--json", "-j"})) << "a switch says the same again";
    EXPECT_EQ(parse_words({"endpoint", "-jn"}).error().message, "unknown option -jn");
    EXPECT_EQ(parse_words({"endpoint", "-x"}).error().message, "unknown option -x");
}

TEST(Parse, does_not_abbreviate_verbs_that_write) {
    EXPECT_EQ(spelled(parse_words({"path", "flush", "web-0"})), "path flush");
    EXPECT_EQ(parse_words({"path", "flu", "web-0"}).error().message, "unknown verb \"flu\" for path");
    EXPECT_EQ(parse_words({"uplink", "s"}).error().message, "unknown verb \"s\" for uplink");
    EXPECT_EQ(parse_words({"uplink", "det", "eth0"}).error().hint, "verbs of uplink: list, sync, detach");
}

TEST(Parse, a_key_may_have_several_words) {
    const auto call = parse_words({"map", "get", "addresses", "blue", "--json", "192.0.2.1"});
    ASSERT_TRUE(call) << call.error().message;
    EXPECT_EQ(call->argument, "addresses");
    EXPECT_EQ(call->more, (std::vector<std::string>{"blue", "192.0.2.1"}));
}

TEST(Parse, help_can_be_requested_at_each_level) {
    EXPECT_EQ(spelled(parse_words({})), " help");
    EXPECT_EQ(spelled(parse_words({"--help"})), " help");
    EXPECT_EQ(spelled(parse_words({"endpoint", "-h"})), "endpoint help");
    EXPECT_EQ(spelled(parse_words({"endpoint", "help"})), "endpoint help");
    EXPECT_EQ(spelled(parse_words({"help", "endpoint", "show"})), "endpoint show help");
    EXPECT_EQ(spelled(parse_words({"map", "dump", "--help"})), "map dump help");
    EXPECT_EQ(spelled(parse_words({"status", "--help"})), "status help");
}

TEST(Help, names_every_verb_and_every_option_of_a_command) {
    const std::string program = help_text({});
    for (const Noun &noun : nouns()) {
        EXPECT_NE(program.find(noun.name), std::string::npos);
        for (const Command &command : noun.commands) {
            Call call;
            call.noun = &noun;
            call.command = &command;
            const std::string text = help_text(call);
            EXPECT_NE(text.find("Usage: podlanectl " + std::string(noun.name)), std::string::npos);
            for (const Option &option : options())
                EXPECT_EQ(std::regex_search(text, std::regex("--" + std::string(option.name) + "[^-a-z]")),
                          command.options.has(option.id))
                    << noun.name << " " << command.verb << " --" << option.name;
        }
    }
}

TEST(Table, has_no_letter_and_no_name_twice) {
    for (const Option &a : options())
        for (const Option &b : options())
            if (&a != &b) {
                EXPECT_NE(a.name, b.name);
                EXPECT_TRUE(a.letter == '\0' || a.letter != b.letter) << a.name << " and " << b.name;
            }
}

// The text on stderr.
std::string error_of(const std::vector<std::string_view> &words, int code = 1) {
    char *out = nullptr, *err = nullptr;
    std::size_t out_size = 0, err_size = 0;
    World world;
    world.out = open_memstream(&out, &out_size);
    world.err = open_memstream(&err, &err_size);
    EXPECT_EQ(run(words, world), code);
    std::fclose(world.out);
    std::fclose(world.err);
    EXPECT_STREQ(out, "");
    const std::string said(err, err_size);
    std::free(out);
    std::free(err);
    return said;
}

std::string usage_error_of(const std::vector<std::string_view> &words) { return error_of(words, 2); }

TEST(Run, usage_errors_exit_with_2_and_say_so_on_stderr_only) {
    EXPECT_EQ(usage_error_of({"endpoint", "list", "--address", "192.0.2.256"}),
              "podlanectl: --address \"192.0.2.256\" is not an IP address\n"
              "hint: write 192.0.2.1 or 2001:db8::1\n");
}

TEST(Run, a_relative_directory_of_pins_is_a_usage_error) {
    for (const std::string_view noun : {"status", "endpoint", "repair", "install"})
        EXPECT_EQ(usage_error_of({noun, "--bpffs", "rel"}),
                  "podlanectl: --bpffs \"rel\" is not an absolute path\nhint: as in /sys/fs/bpf/podlane\n");
}

// Of any command that has the option, not of those alone that need the directory.
TEST(Run, a_relative_directory_is_a_usage_error) {
    for (const std::string_view noun : {"doctor", "gc", "lease", "endpoint", "group", "metrics"})
        EXPECT_EQ(usage_error_of({noun, "--state-dir", "rel"}),
                  "podlanectl: --state-dir \"rel\" is not an absolute path\nhint: as in /var/lib/podlane\n");
    for (const std::string_view noun : {"doctor", "load", "install"})
        EXPECT_EQ(usage_error_of({noun, "--conf-dir", "./rel"}),
                  "podlanectl: --conf-dir \"./rel\" is not an absolute path\nhint: as in /etc/cni/net.d\n");
}

TEST(Run, a_directory_that_is_not_there_is_named_with_its_option) {
    const std::string state_hint =
        "hint: name that of the key \"stateDir\" in the configuration of the pods' network\n";
    for (const std::string_view noun : {"doctor", "gc", "lease", "endpoint"})
        for (const std::string_view directory : {"/nowhere/podlane", "/etc/passwd"})
            EXPECT_EQ(error_of({noun, "--state-dir", directory}),
                      "podlanectl: --state-dir: there is no directory " + std::string(directory) + "\n" + state_hint);
    for (const std::string_view noun : {"doctor", "load"})
        EXPECT_EQ(error_of({noun, "--conf-dir", "/nowhere"}), "podlanectl: --conf-dir: there is no directory /nowhere\n"
                                                              "hint: correct --conf-dir, or leave it out\n");
}

TEST(Run, an_ipv4_address_in_the_form_of_ipv6_is_a_usage_error_with_the_way_out) {
    const std::string hint = "\nhint: write the IPv4 address, 192.0.2.1: IPv4 and IPv6 are never mixed\n";
    const std::string_view mapped = "::ffff:192.0.2.1";
    EXPECT_EQ(usage_error_of({"endpoint", "list", "--address", mapped}),
              "podlanectl: --address \"::ffff:192.0.2.1\" is not an IP address" + hint);
    EXPECT_EQ(usage_error_of({"path", "show", "web-0", "--source", mapped, "--destination", "198.51.100.1"}),
              "podlanectl: path show needs --source with an IP address" + hint);
    EXPECT_EQ(usage_error_of({"path", "show", "web-0", "--source", "198.51.100.1", "--destination", mapped}),
              "podlanectl: path show needs --destination with an IP address" + hint);
}

// Messages of what install reads before it looks at the node.
std::string refusal_of_install(std::vector<std::string_view> options) {
    options.insert(options.begin(), "install");
    const auto call = parse(options);
    const auto subnets = call ? subnets_in(*call) : Result<std::vector<std::string>>(call.error());
    if (!subnets)
        return subnets.error().message;
    const auto keys = check_keys_option(*call);
    return keys ? "" : keys.error().message;
}

TEST(Install, subnets_are_no_empty_items_and_do_not_overlap) {
    const auto refusal = [](std::string_view subnets) { return refusal_of_install({"--subnets", subnets}); };
    EXPECT_EQ(refusal("198.18.1.0/24,2001:db8:1::/64"), "");
    EXPECT_EQ(refusal("198.18.1.0/24,198.18.2.0/24"), "") << "two addresses for each pod";
    for (const std::string empty : {",198.18.1.0/24", "198.18.1.0/24,", "198.18.1.0/24,,198.18.2.0/24", ","})
        EXPECT_EQ(refusal(empty), "--subnets \"" + empty + "\" has an empty item");
    EXPECT_EQ(refusal("198.18.1.0/24,198.18.1.0/24"), "--subnets: 198.18.1.0/24 and 198.18.1.0/24 overlap");
    EXPECT_EQ(refusal("2001:db8::/64,198.18.1.128/25,198.18.0.0/15"),
              "--subnets: 198.18.1.128/25 and 198.18.0.0/15 overlap");
}

TEST(Install, a_key_is_set_once) {
    const auto refusal = [](std::string_view keys, std::vector<std::string_view> options) {
        options.insert(options.end(), {"--keys", keys});
        return refusal_of_install(std::move(options));
    };
    EXPECT_EQ(refusal(R"({"mtu": 1400})", {"--fast-path", "off"}), "");
    EXPECT_EQ(refusal(R"({"ipam": {"type": "whereabouts"}})", {"--subnets", "198.18.1.0/24"}), "");
    EXPECT_EQ(refusal(R"({"mtu": 1400})", {"--mtu", "1300"}), "--keys and --mtu both set \"mtu\"");
    EXPECT_EQ(refusal(R"({"log": {"level": "debug"}})", {"--log-file", "/var/log/podlane.log"}),
              "--keys and --log-file both set \"log\"");
    EXPECT_EQ(refusal(R"({"IPMasq": true})", {"--no-masquerade"}), "--keys and --no-masquerade both set \"ipMasq\"");
    EXPECT_EQ(refusal(R"({"mtu": 1400, "mtu": 1300})", {}), "--keys has \"mtu\" twice");
}

} // namespace
} // namespace podlane::ctl
