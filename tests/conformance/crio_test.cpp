// SPDX-License-Identifier: MIT
// What CRI-O sends its main plugin. There is no recording of it: the requests are built as the sources of its library
// ocicni (pkg/ocicni/ocicni.go, buildCNIRuntimeConf and GC) and of its server (newPodNetwork) build them.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

constexpr std::uint64_t kBurst = 4294967295ULL * 8 - 1; // its "4GB"; earlier versions sent one bit more

struct Sandbox {
    std::shared_ptr<Container> container;
    std::string ns, name;
    Json annotations; // as kubelet hands them to the runtime
    std::uint64_t burst = kBurst;
};

class CrioTest : public CtlTest {
  protected:
    // In this order; ocicni appends what its own environment has in CNI_ARGS.
    [[nodiscard]] static Variables variables_of(const Sandbox &of) {
        return {{"CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + of.ns + ";K8S_POD_NAME=" + of.name +
                                 ";K8S_POD_INFRA_CONTAINER_ID=" + of.container->id() + ";K8S_POD_UID=uid-" + of.name}};
    }
    // libcni hands a plugin those of the runtime's capabilities that its configuration names.
    [[nodiscard]] Json keys_of(const Sandbox &of) const {
        Json runtime = {{"cgroupPath", "/kubepods.slice/kubepods-pod28ce45bc.slice"},
                        {"io.kubernetes.cri.pod-annotations", of.annotations}};
        const auto rate = [&](const char *direction) -> std::uint64_t {
            return of.annotations.contains("kubernetes.io/" + std::string(direction) + "-bandwidth") ? 10'000'000 : 0;
        };
        if (rate("ingress") + rate("egress") != 0) // all four numbers, as the map of ocicni has them
            runtime["bandwidth"] = {{"ingressRate", rate("ingress")},
                                    {"ingressBurst", rate("ingress") != 0 ? of.burst : 0},
                                    {"egressRate", rate("egress")},
                                    {"egressBurst", rate("egress") != 0 ? of.burst : 0}};
        Json keys = base();
        keys["runtimeConfig"] = runtime;
        return keys;
    }
    [[nodiscard]] static Json base() {
        return {
            {"cniVersion", "1.1.0"},
            {"identity", {"annotations"}},
            {"capabilities", {{"bandwidth", true}, {"cgroupPath", true}, {"io.kubernetes.cri.pod-annotations", true}}}};
    }
    Pod start(const Sandbox &of) {
        const Reply reply = succeeded(add(*of.container, keys_of(of), variables_of(of)));
        const Pod pod = look_at(of.container, reply.json);
        // It asks for the pod's status at once, which is a CHECK unless the list has "disableCheck".
        EXPECT_THAT(check(pod, keys_of(of), variables_of(of)), succeeds());
        return pod;
    }
    // From its cache: with the configuration of the ADD and its result, or without that.
    [[nodiscard]] Reply stop(const Pod &pod, const Sandbox &of, bool cached = true) const {
        Json keys = keys_of(of);
        if (cached)
            keys["prevResult"] = pod.result;
        return del(*of.container, keys, variables_of(of));
    }
    [[nodiscard]] Sandbox sandbox(const std::string &name, const Json &annotations) {
        Json all = annotations;
        all.update({{"kubernetes.io/config.seen", "2026-11-23T08:00:00.000000000Z"},
                    {"kubernetes.io/config.source", "api"},
                    {"kubectl.kubernetes.io/last-applied-configuration", "{\"kind\": \"Pod\",\n\"spec\": {}}\n"}});
        return {node_.container(std::string(32, 'a') + std::string(26, 'b') + name), "shop", name, all};
    }
};

TEST_F(CrioTest, PodsLiveAndDieAsItAsksFor) {
    const Variables nobody = {{"CNI_CONTAINERID", ""}, {"CNI_NETNS", ""}, {"CNI_IFNAME", ""}, {"CNI_ARGS", ""}};
    EXPECT_THAT(node_.cni("podlane", "STATUS", node_.config(base()), nobody), succeeds());
    const Sandbox plain = sandbox("web-00", {{"team", "blue"}});
    const Sandbox limited =
        sandbox("web-01", {{"kubernetes.io/ingress-bandwidth", "10M"}, {"kubernetes.io/egress-bandwidth", "10M"}});
    const Pod first = start(plain), second = start(limited);
    const Json shown = ctl_json("endpoint show shop/web-00").at(0);
    EXPECT_THAT(shown, has_members({{"pod_namespace", "shop"}, {"pod_name", "web-00"}, {"pod_uid", "uid-web-00"}}));
    EXPECT_EQ(shown["annotations"]["team"], "blue");
    EXPECT_FALSE(shown["annotations"].contains("kubectl.kubernetes.io/last-applied-configuration"));
    EXPECT_EQ(shown["labels"], Json::object()) << "the name of the pod is no label";
    EXPECT_TRUE(ping(first.ns(), second.text4()));

    EXPECT_THAT(stop(first, plain), succeeds());
    EXPECT_THAT(stop(first, plain), succeeds()) << "it removes a sandbox that it has stopped";
    second.container->remove_namespace();
    EXPECT_THAT(stop(second, limited, false), succeeds()) << "the namespace is gone, and the cache too";
    EXPECT_THAT(node_.leased(), testing::IsEmpty());
}

TEST_F(CrioTest, LimitsAreThoseOfTheAnnotationsWhateverTheBurst) {
    for (const std::uint64_t burst : {kBurst, kBurst + 1}) {
        SCOPED_TRACE(burst);
        Sandbox of = sandbox("web-" + std::to_string(burst % 100), {{"kubernetes.io/ingress-bandwidth", "10M"}});
        of.burst = burst;
        const Pod pod = start(of);
        const Json shown = ctl_json("endpoint show shop/" + of.name).at(0);
        EXPECT_EQ(shown["ingress_limit"]["rate_bits_per_s"], 10'000'000);
        EXPECT_TRUE(shown["egress_limit"].is_null());
        EXPECT_THAT(stop(pod, of), succeeds());
    }
}

// When it starts: all pods that it knows, by both names of the key.
TEST_F(CrioTest, GcAtItsStartKeepsWhatItKnows) {
    const Sandbox living = sandbox("web-00", Json::object()), dead = sandbox("web-01", Json::object());
    const Pod kept = start(living), lost = start(dead);
    Json gc = base();
    gc["cni.dev/valid-attachments"] = {{{"containerID", living.container->id()}, {"ifname", "eth0"}}};
    gc["cni.dev/attachments"] = gc["cni.dev/valid-attachments"];
    EXPECT_THAT(node_.cni("podlane", "GC", node_.config(gc), {{"CNI_ARGS", ""}}), succeeds());
    EXPECT_TRUE(host_link(lost).is_null());
    EXPECT_THAT(check(kept, keys_of(living), variables_of(living)), succeeds());
}

} // namespace
} // namespace podlane::test
