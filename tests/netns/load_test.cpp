// SPDX-License-Identifier: MIT
// podlanectl load: what the first pod would wait for is there before it.
#include "tests/netns/ctl.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

class LoadTest : public CtlTest {
  protected:
    LoadTest() { fs::create_directory(conf_); }

    void write(const std::string &name, const std::string &text) const { std::ofstream(conf_ + "/" + name) << text; }
    [[nodiscard]] static std::string list_of(const Json &plugin) {
        return Json{{"cniVersion", "1.0.0"}, {"name", "pods"}, {"plugins", {{{"type", "tuning"}}, plugin}}}.dump();
    }
    [[nodiscard]] std::string load() const { return "load --conf-dir " + conf_; }
    [[nodiscard]] std::vector<std::uint64_t> ids() const {
        std::vector<std::uint64_t> all;
        const Json status = node_.podlanectl_json("status");
        for (const Json &one : status.at("programs"))
            all.push_back(one.at("id"));
        return all;
    }

    const std::string conf_ = node_.dir() + "/conf";
};

TEST_F(LoadTest, LeavesNothingToLoadToTheFirstAdd) {
    const Output loaded = ctl(load());
    ASSERT_EQ(loaded.rc, 0) << loaded.err;
    EXPECT_EQ(loaded.out,
              "loaded in " + node_.bpffs() + ", with the default settings: no network of Podlane in " + conf_ + "\n");
    const auto before = ids();
    EXPECT_THAT(before, Not(IsEmpty()));

    const Pod pod = make();

    EXPECT_EQ(ids(), before);
    EXPECT_EQ(check(pod).rc, 0);
    EXPECT_EQ(ctl(load()).out, "already loaded in " + node_.bpffs() + "\n");
    EXPECT_EQ(ids(), before);
}

TEST_F(LoadTest, TakesTheSettingsOfTheNetwork) {
    write("05-other.conflist", R"({"name": "other", "plugins": [{"type": "bridge"}]})");
    write("06-broken.conflist", "{");
    write("10-pods.conflist", list_of({{"type", "podlane"}, {"maxEndpoints", 64}}));
    write("20-more.conf", R"({"type": "podlane", "name": "more", "maxEndpoints": 128})");

    const Json loaded = ctl_json(load());

    EXPECT_EQ(loaded,
              (Json{{"loaded", true}, {"bpffs", node_.bpffs()}, {"configuration", conf_ + "/10-pods.conflist"}}));
    const Json maps = node_.podlanectl_json("map list");
    EXPECT_EQ(
        std::ranges::count_if(
            maps, [](const Json &map) { return map.at("name") == PODLANE_MAP_ENDPOINTS && map.at("capacity") == 64; }),
        1);
    EXPECT_EQ(ctl_json(load() + " " + conf_ + "/20-more.conf").at("loaded"), false);
}

// As --bpffs, it goes before the configuration's.
TEST_F(LoadTest, TakesTheDirectoryFromTheEnvironment) {
    write("10-pods.conflist", list_of({{"type", "podlane"}, {"bpffs", node_.bpffs() + "-of-the-file"}}));
    const Output loaded =
        run(node_.ns(), words(variable("PODLANECTL_BIN") + " " + load()), "", {{"PODLANE_BPFFS", node_.bpffs()}});
    EXPECT_THAT(loaded, prints(0, {"loaded in " + node_.bpffs() + ", with"}));
    EXPECT_TRUE(fs::exists(node_.bpffs() + "/live"));
}

// The broken one may be the network's: its sizes would be missed until the next boot.
TEST_F(LoadTest, LoadsNothingForAFileThatIsBroken) {
    write("05-other.conflist", R"({"name": "other", "plugins": [{"type": "bridge"}]})");
    write("10-pods.conflist", R"({"type": "podlane", "name": "pods", "maxEndpoints": 64,})");
    EXPECT_THAT(ctl(load()), complains(1, {conf_ + "/10-pods.conflist", "line 1"}));
    write("10-pods.conflist", R"({"name": "pods", "plugins": {"type": "podlane", "maxEndpoints": 64}})");
    EXPECT_THAT(ctl(load()), complains(1, {conf_ + "/10-pods.conflist", "plugins is "}));
    EXPECT_THAT(ctl("load --conf-dir " + conf_ + "/none"),
                complains(1, {"--conf-dir: there is no directory " + conf_ + "/none"}));
    fs::create_symlink("loop", conf_ + "/loop");
    EXPECT_THAT(ctl("load --conf-dir " + conf_ + "/loop"), complains(1, {"Too many levels of symbolic links"}));
    EXPECT_THAT(ctl("load --conf-dir " + conf_ + std::string(300, 'x')), complains(1, {"File name too long"}));
    EXPECT_FALSE(fs::exists(node_.bpffs()));
}

TEST_F(LoadTest, SaysWhatIsWrongWithAFile) {
    write("other.conflist", R"({"name": "other", "plugins": [{"type": "bridge"}]})");
    write("broken.conflist", "{");
    write("wrong.conflist", list_of({{"type", "podlane"}, {"maxEndpoints", "many"}}));
    write("shape.conflist", R"({"name": "pods", "plugins": {"type": "podlane"}})");
    write("shapes.conflist", R"({"name": "pods", "plugins": [{"type": "podlane"}, "portmap"]})");
    const std::map<std::string, std::vector<std::string>> wrong = {
        {"other.conflist", {"names no plugin of type podlane"}},
        {"broken.conflist", {"JSON"}},
        {"wrong.conflist", {"maxEndpoints", "a whole number"}},
        {"shape.conflist", {"plugins is ", "expected a list"}},
        {"shapes.conflist", {"plugins[1] is ", "expected an object"}},
        {"none.conflist", {"No such file"}}};
    for (const auto &[name, sentences] : wrong) {
        const Output output = ctl("load " + conf_ + "/" + name);
        EXPECT_EQ(output.rc, 1) << name;
        EXPECT_THAT(output.err, HasSubstr(conf_ + "/" + name));
        for (const std::string &sentence : sentences)
            EXPECT_THAT(output.err, HasSubstr(sentence));
    }
    EXPECT_FALSE(fs::exists(node_.bpffs()));
}

TEST_F(LoadTest, SaysThatItCannotWrite) {
    const std::string read_only = node_.dir() + "/ro";
    fs::create_directory(read_only);
    ASSERT_EQ(mount("bpf", read_only.c_str(), "bpf", 0, nullptr), 0);
    ASSERT_EQ(mount(nullptr, read_only.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const Output output =
        run(node_.ns(), {variable("PODLANECTL_BIN"), "load", "--conf-dir", conf_, "--bpffs", read_only + "/podlane"});
    umount(read_only.c_str());
    EXPECT_EQ(output.rc, 1);
    EXPECT_THAT(output.err, AllOf(HasSubstr(read_only + "/podlane"), HasSubstr("Read-only file system")));
}

} // namespace
} // namespace podlane::test
