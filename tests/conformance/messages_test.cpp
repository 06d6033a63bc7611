// SPDX-License-Identifier: MIT
// Messages of calls that fail, or succeed with a warning, for reasons outside of their configuration's text, as
// tests/conformance/data/messages.txt has it. PODLANE_WRITE_MESSAGES=1 rewrites the file.
#include "tests/harness/golden.hpp"
#include "tests/netns/verbs.hpp"

#include <sys/stat.h>

namespace podlane::test {
namespace {

class MessagesTest : public VerbsTest {
  protected:
    // The message and the remedy, or the warnings; with words for what differs from run to run.
    [[nodiscard]] std::string words_of(const Reply &reply) const {
        std::string text;
        if (reply.rc != 0) {
            text = "    " + std::to_string(reply.code()) + " " + reply.message() + "\n";
            if (!reply.details().empty())
                text += "    -> " + reply.details() + "\n";
        } else {
            std::istringstream lines(reply.err);
            for (std::string line; std::getline(lines, line);)
                if (const auto end = line.find("network=pods: "); line.find("Z warning") != std::string::npos)
                    text += "    warning: " + line.substr(end + std::string("network=pods: ").size()) + "\n";
        }
        for (auto at = text.find(node_.dir()); at != std::string::npos; at = text.find(node_.dir()))
            text.replace(at, node_.dir().size(), "DIR");
        return text.empty() ? "    nothing\n" : text;
    }
    // An ADD with these keys, and what it left deleted.
    std::string add_with(const std::string &name, const Json &keys) {
        const auto container = node_.container();
        const Reply added = add(*container, keys);
        std::string text = name + "\n" + words_of(added);
        EXPECT_EQ(del(*container).rc, 0);
        return text;
    }
    // An IPAM plugin that does this.
    std::string add_with_ipam(const std::string &name, const std::string &script, Json keys = Json::object()) {
        node_.put_plugin("broken", script);
        keys["ipam"] = {{"type", "broken"}};
        const auto container = node_.container();
        return name + "\n" + words_of(add(*container, keys));
    }
    // A configuration whose IPAM plugin cannot be run, after one whose IPAM plugin cannot release its lease.
    std::string retry_with_another_ipam() {
        node_.put_plugin("broken", "#!/nonexistent/python3\n");
        std::filesystem::create_directory(node_.plugins() + "/directory");
        const auto container = node_.container();
        const Reply first = add(*container, {{"ipam", {{"type", "broken"}}}});
        const Reply second = add(*container, {{"ipam", {{"type", "directory"}}}});
        return "an IPAM plugin without its interpreter\n" + words_of(first) + "then an ipam.type of a directory\n" +
               words_of(second);
    }
    [[nodiscard]] std::string make_node(const std::string &name, mode_t kind) const {
        const std::string path = node_.dir() + "/" + name;
        EXPECT_EQ(mknod(path.c_str(), kind | 0600, 0), 0);
        return path;
    }
    std::string as_another_user() {
        namespace fs = std::filesystem;
        fs::permissions(node_.dir(), fs::perms::owner_all | fs::perms::others_exec);
        const std::string copy = node_.dir() + "/podlane";
        fs::copy_file(fs::canonical(node_.plugins() + "/podlane"), copy);
        const auto container = node_.container();
        Variables variables = attachment(*container);
        variables["CNI_COMMAND"] = "ADD";
        variables["CNI_PATH"] = node_.plugins();
        std::vector<std::string> command{"setpriv", "--reuid=65534", "--clear-groups", copy};
        const Output done = run(node_.ns(), command, node_.config().dump(), variables);
        Reply reply{done.rc, done.out, done.err, Json::parse(done.out, nullptr, false)};
        return "run by user 65534\n" + words_of(reply);
    }
};

TEST_F(MessagesTest, AreThoseOfTheFile) {
    std::string now = as_another_user();
    now += add_with("ipam.type of no plugin", {{"ipam", {{"type", "nowhere"}}}});
    now += add_with_ipam("an IPAM plugin that exits", "#!/bin/sh\necho trouble >&2\nexit 3\n");
    now += add_with_ipam("an IPAM plugin that crashes", "#!/bin/sh\nkill -SEGV $$\n");
    now += add_with_ipam("an IPAM plugin that is killed", "#!/bin/sh\nkill -KILL $$\n");
    now += add_with_ipam("an IPAM plugin that is terminated", "#!/bin/sh\nkill -TERM $$\n");
    now += add_with_ipam("an IPAM plugin that refuses, without details",
                         "#!/bin/sh\necho '{\"code\":999,\"msg\":\"no such pool\"}'\nexit 1\n");
    now += add_with_ipam("an IPAM plugin that prints without end", "#!/bin/sh\nexec yes\n");
    now += add_with_ipam("an IPAM plugin that refuses the version and lists none",
                         "#!/bin/sh\necho '{\"code\":1,\"msg\":\"too new for me\"}'\n[ $CNI_COMMAND = VERSION ]\n");
    now += add_with_ipam("an IPAM plugin that refuses VERSION too",
                         "#!/bin/sh\necho '{\"code\":1,\"msg\":\"too new for me\"}'\nexit 1\n");
    now += add_with_ipam("an IPAM plugin that prints no result", "#!/bin/sh\necho hello\n");
    now += add_with("ipam.routes of another shape", {{"ipam", {{"routes", {{{"dest", "0.0.0.0/0"}}}}}}});
    now += add_with_ipam("an IPAM plugin that hangs", "#!/bin/sh\nexec sleep 60\n", {{"ipamTimeout", 1}});
    std::filesystem::permissions(node_.plugins() + "/broken", std::filesystem::perms::owner_read);
    now += add_with("an IPAM plugin without the x bit", {{"ipam", {{"type", "broken"}}}});
    now += retry_with_another_ipam();
    now += add_with("log.file in no directory", {{"log", {{"file", node_.dir() + "/none/podlane.log"}}}});
    now += add_with("log.file on a full disk",
                    {{"log", {{"file", "/dev/full"}}}, {"uplink", "up0"}, {"gateway", "192.0.2.1"}});
    now += add_with("log.file that is a socket", {{"log", {{"file", make_node("socket", S_IFSOCK)}}}});
    now += add_with("log.file that is a pipe", {{"log", {{"file", make_node("pipe", S_IFIFO)}}}});
    now += add_with("uplink without interface", {{"uplink", "none0"}});
    now += add_with("gateway on no link, without uplink", {{"gateway", {"192.0.2.1", "2001:db8:99::1"}}});
    now += add_with("gateway off the uplink's link", {{"uplink", "up0"}, {"gateway", "192.0.2.1"}});
    now += add_with("gateway on the uplink's link", {{"uplink", "up0"}, {"gateway", "203.0.113.1"}});
    now += add_with("ipam and prevResult", {{"prevResult", {{"cniVersion", "1.0.0"}}}});
    expect_as_in("tests/conformance/data/messages.txt", now);
}

} // namespace
} // namespace podlane::test
