// SPDX-License-Identifier: MIT
// An ADD, or another call, that takes long: its IPAM plugin or nft sleeps as long as a file is there.
#pragma once

#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "tests/netns/verbs.hpp"

#include <future>
#include <thread>

namespace podlane::test {

class AddUnderWayTest : public VerbsTest {
  protected:
    AddUnderWayTest() { std::ofstream(asleep_).close(); }
    ~AddUnderWayTest() override { end(); }

    // Sleeps while the file is there, in a program of its own. Notes who that is, and who has called the script.
    [[nodiscard]] std::string sleeping() const {
        return "PARENT=$PPID sh -c 'echo $PARENT $$ >" + noted_ + ".new; mv " + noted_ + ".new " + noted_ +
               "; while [ -e " + asleep_ + " ]; do sleep 0.01; done; ";
    }
    void begin(const Json &keys = Json::object(), const Variables &more = {}) {
        adding_ = std::thread([this, keys, more] { reply_ = add(*container_, keys, more); });
        ASSERT_TRUE(wait_until([&] { return fs::exists(noted_); }));
        std::ifstream(noted_) >> caller_ >> sleeper_;
    }
    // Once it has opened their file, a call has seen whether another one has its turn, or is about to.
    [[nodiscard]] bool has_opened_the_turns(const std::string &verb) const {
        for (const auto &process : fs::directory_iterator("/proc")) {
            std::error_code gone;
            std::ifstream file(process.path() / "environ");
            const std::string environment(std::istreambuf_iterator<char>(file), {});
            if (environment.find("CNI_COMMAND=" + verb) == std::string::npos ||
                environment.find(node_.dir()) == std::string::npos)
                continue;
            for (fs::directory_iterator fd(process.path() / "fd", gone); !gone && fd != fs::directory_iterator();
                 fd.increment(gone))
                if (fs::read_symlink(fd->path(), gone) == turns_)
                    return true;
        }
        return false;
    }
    // Of the same attachment.
    void expect_waits(const std::string &verb, std::future<Reply> &call) const {
        const auto is_done = [&] { return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
        EXPECT_TRUE(wait_until([&] { return is_done() || has_opened_the_turns(verb); }));
        EXPECT_EQ(call.wait_for(quiet()), std::future_status::timeout) << verb << " does not wait";
    }
    [[nodiscard]] std::future<Reply> start(const std::string &verb, const Variables &more = {},
                                           const Json &keys = Json::object()) const {
        return std::async(std::launch::async,
                          [this, verb, more, keys] { return node_.cni(verb, node_.config(keys), *container_, more); });
    }
    // With a file of its own, as if it could not open that of the others.
    [[nodiscard]] Reply del_without_turn(const Json &keys = Json::object()) const {
        node_.put_plugin("without-turn", "#!/bin/sh\nexec unshare -m sh -c 'mount --bind /dev/null " + turns_ +
                                             " && exec " + node_.plugins() + "/podlane'\n");
        Variables variables = attachment(*container_);
        variables["CNI_NETNS"] = "";
        return node_.cni("without-turn", "DEL", node_.config(keys), variables);
    }
    // Asleep in nft, after the endpoint is on record.
    void begin_with_rules(const Json &keys, Variables more = {}) {
        const std::string tools = node_.dir() + "/tools", path = "/usr/sbin:/usr/bin:/sbin:/bin";
        fs::create_directory(tools);
        node_.put_plugin("nft", "#!/bin/sh\n" + sleeping() + "exec /usr/sbin/nft -f -'\n");
        fs::rename(node_.plugins() + "/nft", tools + "/nft");
        more["PATH"] = tools + ":" + path;
        begin(keys, more);
    }
    void sleep_in(const std::string &verb) const {
        node_.put_plugin("host-local", "#!/bin/sh\n[ $CNI_COMMAND = " + verb + " ] || exec " + real_ + "\n" +
                                           sleeping() + "exec " + real_ + "'\n");
    }
    // After its lease is there.
    void sleep_with_lease() const {
        node_.put_plugin("host-local", of_add_ + "lease=$(" + real_ + ")\n" + sleeping() + "true'\necho \"$lease\"\n");
    }
    void end() {
        fs::remove(asleep_);
        if (adding_.joinable())
            adding_.join();
    }
    [[nodiscard]] bool is_over(pid_t pid) const {
        std::string word, state;
        std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> word >> word >> state;
        return state.empty() || state == "Z";
    }

    const std::string real_ = variable("CNI_PLUGINS") + "/host-local";
    const std::string of_add_ = "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exec " + real_ + "\n";
    const std::string asleep_ = node_.dir() + "/asleep", noted_ = node_.dir() + "/noted";
    const std::string turns_ = std::string(kStateDirectory) + "/.turns";
    const std::shared_ptr<Container> container_ = node_.container();
    const std::string before_ = everything();
    std::thread adding_;
    Reply reply_;
    pid_t caller_ = 0, sleeper_ = 0;
};

} // namespace podlane::test
