// SPDX-License-Identifier: MIT
// An ADD that gives its groups to the container's other interface adds to that one's record: if it fails or is killed
// meanwhile, the record is as it was, and later ADDs and changes of groups count.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class TornAdditionTest : public CtlTest {
  protected:
    static Json grouped(const std::string &group) { return {{"groups", {"name:" + group}}, {"isolation", "group"}}; }
    // A record that is longer than those of the container's other interface: only what is added to it is too much.
    [[nodiscard]] Pod make_first() {
        Json keys = grouped("tenant-a");
        for (int i = 0; i < 60; ++i)
            keys["noMasquerade"].push_back("203.0." + std::to_string(i) + ".0/24");
        return make(keys);
    }
    [[nodiscard]] Json second() const {
        Json config = node_.config(grouped("tenant-b"));
        config["name"] = "second";
        config["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
        return config;
    }
    [[nodiscard]] Reply call_second(const std::string &command, const Pod &of,
                                    std::vector<std::string> argv = {}) const {
        argv.push_back(node_.plugins() + "/podlane");
        Variables variables = attachment(*of.container, "net1");
        variables.insert({{"CNI_COMMAND", command}, {"CNI_PATH", node_.plugins()}});
        return to_reply(run(node_.ns(), argv, second().dump(), variables));
    }
    [[nodiscard]] AttachmentRecord record_on_disk(const Pod &of) const {
        return *require(AttachmentRecords(kStateDirectory, node_.bpffs()).find(of.container->id(), "eth0"));
    }
    [[nodiscard]] std::string path_of(const Pod &of) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + of.container->id() + ":eth0";
    }
    // As a call leaves it that was killed while it added to the record.
    void add_torn_end(const Pod &of) const {
        AttachmentRecord news;
        news.groups = "tenant-c\n";
        const std::string text = record_text(news);
        std::ofstream(path_of(of), std::ios::app) << text.substr(0, text.size() - 3);
        ASSERT_TRUE(record_on_disk(of).is_torn);
    }
    [[nodiscard]] Json groups_of(const Pod &pod) const {
        Json groups = ctl_json("endpoint show --container " + pod.container->id()).at(0).at("groups");
        std::sort(groups.begin(), groups.end());
        return groups;
    }
    void expect_groups_can_change(const Pod &pod) const {
        EXPECT_FALSE(record_on_disk(pod).is_torn);
        EXPECT_THAT(ctl("group add tenant-d --container " + pod.container->id()), prints(0));
        EXPECT_THAT(groups_of(pod), testing::Contains("tenant-d"));
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("torn")));
    }
    void expect_deleted(const Pod &pod) const {
        EXPECT_THAT(call_second("DEL", pod), succeeds());
        EXPECT_THAT(del(*pod.container, grouped("tenant-a")), succeeds());
        EXPECT_EQ(everything(), before_);
    }

    const std::string before_ = everything();
};

// A part of the addition finds room, as on a disk that becomes full.
TEST_F(TornAdditionTest, ThatFailsLeavesTheRecordAsItWas) {
    const Pod made = make_first();
    const std::string text = read_file(path_of(made));
    const Reply refused = call_second("ADD", made, {"prlimit", "--fsize=" + std::to_string(text.size() + 30)});
    EXPECT_THAT(refused, fails_with(5, {"writing " + path_of(made) + ": File too large"}));
    EXPECT_THAT(refused.message(), Not(HasSubstr("rolling back")));
    EXPECT_EQ(read_file(path_of(made)), text);
    EXPECT_THAT(node_.records(), ElementsAre(made.container->id() + ":eth0"));
    EXPECT_EQ(groups_of(made), Json({"tenant-a"}));
    EXPECT_THAT(call_second("ADD", made), succeeds());
    EXPECT_EQ(groups_of(made), Json({"tenant-a", "tenant-b"}));
    expect_groups_can_change(made);
    expect_deleted(made);
}

TEST_F(TornAdditionTest, ThatWasKilledIsCutOffByTheNextAdd) {
    const Pod made = make_first();
    add_torn_end(made);
    EXPECT_EQ(groups_of(made), Json({"tenant-a"}));
    EXPECT_THAT(call_second("ADD", made), succeeds());
    EXPECT_EQ(groups_of(made), Json({"tenant-a", "tenant-b"}));
    expect_groups_can_change(made);
    expect_deleted(made);
}

TEST_F(TornAdditionTest, ThatWasKilledIsCutOffByItsDel) {
    const Pod made = make_first();
    EXPECT_THAT(call_second("ADD", made), succeeds());
    const std::string text = read_file(path_of(made));
    add_torn_end(made);
    EXPECT_THAT(call_second("DEL", made), succeeds());
    EXPECT_EQ(read_file(path_of(made)), text);
    expect_groups_can_change(made);
    expect_deleted(made);
}

// An ADD that fails behind its addition rolls it back, even if there is no room for another one.
TEST_F(TornAdditionTest, IsCutOffByAnAddThatFailsLater) {
    const Pod made = make_first();
    const std::string text = read_file(path_of(made));
    EXPECT_THAT(call_second("ADD", made, {"sh", "-c", "exec \"$0\" >/dev/full"}).err,
                HasSubstr("writing the result to standard output"));
    EXPECT_EQ(read_file(path_of(made)), text);
    EXPECT_EQ(groups_of(made), Json({"tenant-a"}));
    expect_groups_can_change(made);
    expect_deleted(made);
}

} // namespace
} // namespace podlane::test
