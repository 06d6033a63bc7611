// SPDX-License-Identifier: MIT
// Debian's containerd, as a kubelet drives it: sandboxes of annotated pods by CRI, and the configuration that it makes
// of docs/examples/containerd.template.
#include "tests/harness/cluster.hpp"
#include "tests/netns/ctl.hpp"
#include "tests/harness/environment.hpp"

#include <fstream>

namespace podlane::test {
namespace {

class ContainerdTest : public CtlTest {
  protected:
    void SetUp() override {
        for (const char *file : {"/usr/bin/containerd", "/usr/sbin/runc", "/bin/busybox"})
            if (!std::filesystem::exists(file))
                GTEST_SKIP() << file << " is not installed (tools/setup)";
        if (run(node_.ns(), {"/usr/bin/python3", "-c", "import grpc"}).rc != 0)
            GTEST_SKIP() << "python3-grpcio is not installed (tools/setup)";
        std::ofstream(path("template")) << filled_template();
        std::filesystem::create_directory(path("conf"));
        std::ofstream(path("config.toml")) << configuration();
        start();
        cri({"image", path("image.tar"), "/bin/busybox"});
        node_.run("ctr -a " + socket() + " -n k8s.io images import --snapshotter native " + path("image.tar"));
    }
    [[nodiscard]] std::string path(const std::string &name) const { return node_.dir() + "/" + name; }
    [[nodiscard]] std::string socket() const { return path("run/containerd.sock"); }
    void start() {
        containerd_ = std::make_unique<Daemon>(
            node_.ns(), std::vector<std::string>{"/usr/bin/containerd", "-c", path("config.toml")},
            path("containerd.log"));
        if (!wait_until([&] { return run(node_.ns(), words("ctr -a " + socket() + " version")).rc == 0; }))
            throw std::runtime_error("containerd does not start: " + read_file(path("containerd.log")));
    }
    void TearDown() override {
        for (const std::string &id : sandboxes_)
            (void)try_cri({socket(), "remove", id});
    }

    // The documented one, with the directories of the test and more keys for Podlane.
    [[nodiscard]] std::string filled_template() const {
        std::string text = source_text("docs/examples/containerd.template");
        const std::string key = "\"ipMasq\": true,";
        const Json more = {{"bpffs", node_.bpffs()},
                           {"identity", {"annotations"}},
                           {"podMay", {"bandwidth", "addresses", "mac"}},
                           {"podMayNot", "refuse"},
                           {"keepAddress", "statefulSet"}};
        text.replace(text.find(key), key.size(), key + more.dump().substr(1, more.dump().size() - 2) + ",");
        const std::string type = R"("type": "host-local",)";
        return text.replace(text.find(type), type.size(), type + "\"dataDir\": \"" + node_.leases() + "\",");
    }
    [[nodiscard]] std::string configuration() const {
        return "version = 2\nroot = \"" + path("root") + "\"\nstate = \"" + path("run") + "\"\n[grpc]\n  address = \"" +
               socket() + "\"\n[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"" + path("opt") +
               "\"\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"registry.k8s.io/pause:3.6\"\n"
               "  disable_apparmor = true\n  disable_cgroup = true\n  restrict_oom_score_adj = true\n"
               "  [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n    snapshotter = \"native\"\n"
               "  [plugins.\"io.containerd.grpc.v1.cri\".cni]\n    bin_dir = \"" +
               node_.plugins() + "\"\n    conf_dir = \"" + path("conf") + "\"\n    conf_template = \"" +
               path("template") + "\"\n";
    }
    [[nodiscard]] Output try_cri(const std::vector<std::string> &arguments) const {
        std::vector<std::string> argv = {"/usr/bin/python3", source_path("tests/netns/cri.py")};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return run(node_.ns(), argv);
    }
    std::string cri(const std::vector<std::string> &arguments) const {
        const Output output = try_cri(arguments);
        if (output.rc != 0)
            throw std::runtime_error(arguments.at(1) + ": " + output.err);
        return output.out;
    }
    std::string run_sandbox(const std::string &name, const Json &annotations) {
        const std::string out = cri({socket(), "run", "shop", name, "uid-" + name, annotations.dump()});
        sandboxes_.insert(out.substr(0, out.find('\n')));
        return out.substr(0, out.find('\n'));
    }
    void remove(const std::string &id) {
        cri({socket(), "remove", id});
        sandboxes_.erase(id);
    }

    std::unique_ptr<Daemon> containerd_;
    std::set<std::string> sandboxes_;
};

TEST_F(ContainerdTest, AnnotatedPodsGetWhatTheyRequest) {
    cri({socket(), "update", "198.18.9.0/24,2001:db8:9::/64"});
    const Json config = Json::parse(read_file(path("conf/10-containerd-net.conflist")));
    EXPECT_EQ(config.at("plugins").at(0).at("ipam").at("ranges"),
              Json::parse(R"([[{"subnet": "198.18.9.0/24"}], [{"subnet": "2001:db8:9::/64"}]])"));

    const std::string asked = R"(["198.18.9.77", "2001:db8:9::77"])";
    const std::string first = run_sandbox("web-0", {{"team", "blue"},
                                                    {"cni.projectcalico.org/ipAddrs", asked},
                                                    {"cni.projectcalico.org/hwAddr", "02:00:00:00:00:17"},
                                                    {"kubernetes.io/ingress-bandwidth", "8M"}});
    EXPECT_EQ(cri({socket(), "addresses", first}), "198.18.9.77\n2001:db8:9::77\n");
    EXPECT_THAT(ctl("endpoint show shop/web-0").out, has_all({"team=blue", "02:00:00:00:00:17", "198.18.9.77"}));
    EXPECT_THAT(ctl("bandwidth list --pod shop/web-0").out, HasSubstr("8"));
    EXPECT_TRUE(ping(node_.ns(), "198.18.9.77"));
    EXPECT_TRUE(ping(node_.ns(), "2001:db8:9::77"));

    const Output refused = try_cri({socket(), "run", "shop", "bad", "uid", R"({"podlane/mtu": "1280"})"});
    EXPECT_EQ(refused.rc, 1);
    EXPECT_THAT(refused.err, has_all({"podlane/mtu", "what the pod may not"}));

    const std::string second = run_sandbox("db-0", Json::object());
    const std::string addresses = cri({socket(), "addresses", second});
    remove(second);
    const std::string third = run_sandbox("db-0", Json::object());
    EXPECT_EQ(cri({socket(), "addresses", third}), addresses) << "a StatefulSet's pod";
    remove(third);
    remove(first);
    EXPECT_THAT(ctl_json("endpoint list"), Json::array());
    EXPECT_THAT(ctl("lease release --all"), prints(0));
    EXPECT_THAT(node_.leased(), IsEmpty());
}

} // namespace
} // namespace podlane::test
