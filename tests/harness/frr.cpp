// SPDX-License-Identifier: MIT
#include "tests/harness/frr.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace podlane::test {
namespace {

constexpr const char *kPrograms = "/usr/lib/frr/";

std::string directory(const Node &node) { return node.dir() + "/frr"; }

} // namespace

bool Frrs::installed() { return std::filesystem::exists(std::string(kPrograms) + "bgpd"); }

Frrs::Frrs(const Cluster &cluster) : cluster_(cluster) {
    for (int node = 1; node <= Cluster::kNodes; ++node)
        start(node);
}

// As its service does it: the daemons without a configuration, then vtysh, which hands each its part.
void Frrs::start(int number) {
    const Node &node = cluster_.node(number);
    const std::string dir = directory(node);
    std::filesystem::create_directory(dir);
    std::ofstream(dir + "/frr.conf") << example_of(number, "frr.conf");
    std::ofstream(dir + "/empty.conf");
    node.run("chmod a+x " + node.dir()); // the daemons insist on a user of their own
    node.run("chown -R frr:frr " + dir);
    for (const std::string name : {"zebra", "staticd", "bgpd", "bfdd"}) {
        std::vector<std::string> argv = {kPrograms + name,
                                         "-f",
                                         dir + "/empty.conf",
                                         "-i",
                                         dir + "/" + name + ".pid",
                                         "-z",
                                         dir + "/zserv.api",
                                         "-u",
                                         "frr",
                                         "-g",
                                         "frr",
                                         "-P",
                                         "0",
                                         "--vty_socket",
                                         dir};
        if (name == "bfdd")
            argv.insert(argv.end(), {"--bfdctl", dir + "/bfdd.sock"});
        daemons_.at(static_cast<std::size_t>(number - 1)).emplace_back(node.ns(), argv, dir + "/log");
        if (!wait_until([&] { return std::filesystem::exists(dir + "/" + name + ".vty"); }))
            throw std::runtime_error(name + " does not start: " + node.run("cat " + dir + "/log"));
    }
    (void)vtysh(number, {"-b"});
}

std::string Frrs::vtysh(int number, const std::vector<std::string> &arguments) const {
    const std::string dir = directory(cluster_.node(number));
    std::vector<std::string> argv = {"vtysh", "--vty_socket", dir, "--config_dir", dir};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const Output said = run(cluster_.node(number).ns(), argv);
    if (said.rc != 0)
        throw std::runtime_error("vtysh: " + said.out + said.err);
    return said.out;
}

std::string Frrs::ask(int number, const std::string &command) const { return vtysh(number, {"-c", command}); }

bool Frrs::settle(std::size_t ways) const { return cluster_.settle("bgp", ways); }

} // namespace podlane::test
