// SPDX-License-Identifier: MIT
#include "tests/harness/node.hpp"

#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "loader/record.hpp"
#include "tests/harness/error.hpp"
#include "tests/harness/throw_errno.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <iostream>
#include <stdexcept>
#include <thread>

namespace podlane::test {
namespace {

namespace fs = std::filesystem;

std::string variable(const char *name, const std::string &otherwise) {
    const char *value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

void must(bool done, const std::string &what) {
    if (!done)
        throw_errno(what);
}

// Mounts of the test are seen by the test and its children alone, and go with them, however they end. So does the
// bpffs with everything pinned in it.
void use_own_mounts() {
    static bool done = false;
    if (done)
        return;
    done = true;
    must(unshare(CLONE_NEWNS) == 0, "unshare");
    must(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "making mounts private");
    fs::create_directories("/var/lib/podlane");
    must(mount("podlane", "/var/lib/podlane", "tmpfs", 0, "mode=0700") == 0, "mounting /var/lib/podlane");
    must(mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700") == 0, "mounting /sys/fs/bpf");
}

// A namespace, made on a thread of its own, so that the caller stays where it is.
std::unique_ptr<net::Namespace> new_namespace() {
    std::unique_ptr<net::Namespace> made;
    std::thread([&made] {
        if (unshare(CLONE_NEWNET) != 0)
            return;
        if (auto current = net::Namespace::current())
            made = std::make_unique<net::Namespace>(std::move(current).value());
    }).join();
    must(made != nullptr, "making a network namespace");
    return made;
}

std::string new_directory() {
    std::string path = (fs::temp_directory_path() / "podlane-test-XXXXXX").string();
    must(mkdtemp(path.data()) != nullptr, "mkdtemp");
    return path;
}

template <typename Keys> std::string count_text(const char *name, Result<Keys> keys) {
    return std::string(name) + ": " + (keys ? std::to_string(keys->size()) : keys.error().message) + "\n";
}

template <typename Table> std::string entries_text(const char *name, Result<Table> table) {
    if (!table)
        return std::string(name) + ": " + (table.error().code == ErrorCode::missing ? "0" : table.error().message) +
               "\n";
    return count_text(name, table->entries());
}

std::string counters_text(const std::string &root) {
    const auto table = open_counters(root, Access::read_only);
    if (!table)
        return std::string(PODLANE_MAP_COUNTERS) + ": 0\n";
    auto keys = require(table->keys());
    std::erase(keys, 0U); // of interfaces that are no endpoint; always there
    return count_text(PODLANE_MAP_COUNTERS, Result(keys));
}

std::string isolations_text(const std::string &root) {
    const auto table = open_isolations(root, Access::read_only);
    auto entries = table ? require(table->entries()) : std::vector<std::pair<std::uint32_t, isolation>>{};
    std::erase_if(entries, [](const auto &one) { return one.first == 0; }); // the key of the hashes
    return count_text(PODLANE_MAP_ISOLATION, Result(entries));
}

std::string maps_text(const std::string &root) {
    constexpr Access kRead = Access::read_only;
    return entries_text(PODLANE_MAP_ENDPOINTS, open_endpoints(root, kRead)) +
           entries_text(PODLANE_MAP_INTERFACES, open_interfaces(root, kRead)) +
           entries_text(PODLANE_MAP_ADDRESSES, open_addresses(root, kRead)) +
           entries_text(PODLANE_MAP_NETWORKS, open_networks(root, kRead)) +
           entries_text(PODLANE_MAP_KEPT_PATHS, open_kept_paths(root, kRead)) +
           entries_text(PODLANE_MAP_SOURCES, open_allowed_sources(root, kRead)) +
           entries_text(PODLANE_MAP_BANDWIDTHS, open_bandwidths(root, kRead)) +
           entries_text(PODLANE_MAP_LIMIT_GROUPS, open_limit_groups(root, kRead)) +
           entries_text(PODLANE_MAP_SOURCE_ROUTES, open_source_routes(root, kRead)) +
           entries_text(PODLANE_MAP_SOURCE_SLOTS, open_source_slots(root, kRead)) +
           entries_text(PODLANE_MAP_LIMITS, open_limit_states(root, kRead)) +
           entries_text(PODLANE_MAP_EXEMPT, open_exempts(root, kRead)) +
           entries_text(PODLANE_MAP_SENDERS, open_senders(root, kRead)) +
           entries_text(PODLANE_MAP_GROUP_CIDRS, open_group_cidrs(root, kRead)) +
           entries_text(PODLANE_MAP_UPLINKS, open_uplinks(root, kRead)) +
           entries_text(PODLANE_MAP_CIDRS, open_cluster_cidrs(root, kRead)) + counters_text(root) +
           isolations_text(root);
}

// Whatever is pinned but the programs and maps, which stay.
std::string pins_text(const std::string &root) {
    std::string text;
    std::error_code ignored;
    for (const auto &entry : fs::recursive_directory_iterator(root, ignored)) {
        const std::string name = entry.path().filename();
        if (name != "live" && name != kNetnsLink && std::ranges::find(kMapNames, name) == kMapNames.end() &&
            !name.starts_with(PODLANE_PROGRAM_PREFIX))
            text += "pin " + entry.path().string() + "\n";
    }
    return text;
}

// Changes by the kernel's workers a moment later are nobody's: they follow the carrier with the link's
// state, detects duplicate addresses, and enters the route that makes an IPv6 address its own.
bool is_settled(const std::string &links, const std::string &addresses, const std::string &ipv6_routes) {
    const auto has = [](const std::string &text, const std::string &part) {
        return text.find(part) != std::string::npos;
    };
    std::istringstream lines(links);
    for (std::string line; std::getline(lines, line);)
        if (has(line, "LOWER_UP") && (has(line, " state DOWN ") || has(line, " state LOWERLAYERDOWN ")))
            return false;
    lines = std::istringstream(addresses);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string number, link, family, address;
        fields >> number >> link >> family >> address;
        address = address.substr(0, address.find('/'));
        if (has(line, " tentative") ||
            (family == "inet6" && !has(ipv6_routes, "local " + address + " dev " + link + " ")))
            return false;
    }
    return true;
}

} // namespace

Container::Container(std::string id, std::string path)
    : id_(std::move(id)), path_(std::move(path)), ns_(new_namespace()) {
    std::ofstream(path_).close();
    const std::string source = "/proc/self/fd/" + std::to_string(ns_->fd());
    must(mount(source.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) == 0, "mounting " + path_);
}

void Container::remove_namespace() {
    umount2(path_.c_str(), MNT_DETACH);
    unlink(path_.c_str());
    ns_.reset();
}

Container::~Container() {
    if (ns_)
        remove_namespace();
}

std::ostream &operator<<(std::ostream &stream, const Reply &reply) {
    return stream << "exit code " << reply.rc << ", out '" << reply.out << "', err '" << reply.err << "'";
}

Node::Node() {
    static std::atomic<int> nodes = 0;
    use_own_mounts();
    ns_ = new_namespace();
    dir_ = new_directory();
    bpffs_ = "/sys/fs/bpf/podlane-test-" + std::to_string(getpid()) + "-" + std::to_string(++nodes);
    fs::create_directory(plugins());
    for (const auto &entry : fs::directory_iterator(variable("CNI_PLUGINS", "/usr/lib/cni")))
        fs::create_symlink(entry.path(), plugins() + "/" + entry.path().filename().string());
    const char *podlane = std::getenv("PODLANE_BIN");
    must(podlane != nullptr && access(podlane, X_OK) == 0, "PODLANE_BIN must be the plugin's path");
    fs::create_symlink(fs::absolute(podlane), plugins() + "/podlane");
    run("ip link set lo up");
}

Node::~Node() {
    std::error_code ignored;
    fs::remove_all(bpffs_, ignored);
    fs::remove_all(dir_, ignored);
    fs::remove_all(AttachmentRecords(kStateDirectory, bpffs_).directory(), ignored);
}

void Node::put_plugin(const std::string &name, const std::string &script) const {
    remove_plugin(name);
    std::ofstream(plugins() + "/" + name) << script;
    constexpr mode_t kExecutable = 0755;
    must(chmod((plugins() + "/" + name).c_str(), kExecutable) == 0, "chmod");
}

void Node::remove_plugin(const std::string &name) const { unlink((plugins() + "/" + name).c_str()); }

std::shared_ptr<Container> Node::container(const std::string &id) {
    const std::string number = std::to_string(++containers_);
    return std::make_shared<Container>(id.empty() ? "container" + number : id, dir_ + "/netns-" + number);
}

Output Node::podlanectl(const std::vector<std::string> &arguments) const {
    std::vector<std::string> argv{variable("PODLANECTL_BIN"), "--bpffs", bpffs_};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return test::run(ns(), argv);
}

Json Node::podlanectl_json(const std::string &arguments) const {
    const Output output = podlanectl("--json " + arguments);
    if (output.rc != 0)
        throw std::runtime_error("podlanectl " + arguments + ": " + output.out + output.err);
    return Json::parse(output.out);
}

void Node::show(const std::vector<std::string> &lists) const {
    for (const std::string &list : lists)
        std::cerr << podlanectl(list).out;
}

Reply to_reply(Output output) {
    Reply reply{output.rc, std::move(output.out), std::move(output.err), {}};
    reply.json = Json::parse(reply.out, nullptr, false);
    if (reply.json.is_discarded())
        reply.json = nullptr;
    return reply;
}

Reply Node::cni_text(const std::string &plugin, const std::string &command, const std::string &config,
                     const Variables &environment) const {
    Variables all = environment;
    all.try_emplace("CNI_COMMAND", command);
    all.try_emplace("CNI_PATH", plugins());
    return to_reply(test::run(ns(), {plugins() + "/" + plugin}, config, all));
}

Reply Node::cni(const std::string &plugin, const std::string &command, const Json &config,
                const Variables &environment) const {
    return cni_text(plugin, command, config.dump(), environment);
}

Reply Node::cni(const std::string &command, const Json &config, const Container &container,
                const Variables &more) const {
    Variables all = more;
    all.merge(attachment(container));
    return cni(config.at("type").get<std::string>(), command, config, all);
}

Json Node::ipam() const {
    return {{"type", "host-local"},
            {"dataDir", leases()},
            {"ranges", {{{{"subnet", "198.18.9.0/24"}}}, {{{"subnet", "2001:db8:9::/64"}}}}}};
}

Json Node::config(const Json &keys) const {
    Json all = {{"cniVersion", "1.0.0"}, {"name", "pods"}, {"type", "podlane"},
                {"bpffs", bpffs_},       {"ipam", ipam()}, {"firstPacket", "direct"}};
    all.merge_patch(keys);
    return all;
}

std::string Node::state() const {
    std::string text;
    const auto read_settled = [&] {
        const std::string links = run("ip -o link"), addresses = run("ip -o addr"),
                          routes = run("ip -6 route show table all");
        text = links + addresses + routes;
        return is_settled(links, addresses, routes);
    };
    wait_until(read_settled);
    for (const char *what :
         {"ip -4 route show table all", "ip -4 rule", "ip -6 rule", "ip neigh show nud permanent", "tc qdisc show"})
        text += run(what);
    // An uplink keeps the qdisc: it may carry others' programs by now.
    const std::string kept = "qdisc clsact ffff: dev up0 parent ffff:fff1 \n";
    if (const std::size_t at = text.find(kept); at != std::string::npos)
        text.erase(at, kept.size());
    text += maps_text(bpffs_) + pins_text(bpffs_);
    for (const std::string &record : records())
        text += "record " + record + "\n";
    for (const std::string &lease : leased())
        text += "lease " + lease + "\n";
    return text;
}

std::vector<std::string> Node::records() const {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(AttachmentRecords(kStateDirectory, bpffs_).directory(), ignored))
        if (entry.path().filename().string().find(':') != std::string::npos) // also of writes that were killed
            found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
}

std::vector<std::string> Node::leased() const {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto &entry : fs::recursive_directory_iterator(leases(), ignored))
        if (parse_ip(entry.path().filename().string()))
            found.push_back(entry.path().filename());
    std::ranges::sort(found);
    return found;
}

struct count Node::counted(std::uint32_t ifindex, reason why) const {
    return require(sum_of(require(open_counters(bpffs_, Access::read_only)), ifindex)).by_reason[why];
}

struct count Node::counted(const std::string &ifname, reason why) const {
    return counted(Json::parse(run("ip -j link show " + ifname)).at(0).at("ifindex").get<std::uint32_t>(), why);
}

Variables attachment(const Container &container, const std::string &ifname) {
    return {{"CNI_CONTAINERID", container.id()}, {"CNI_NETNS", container.path()}, {"CNI_IFNAME", ifname}};
}

bool kernel_can_tcx() { return has_tcx(); }

} // namespace podlane::test
