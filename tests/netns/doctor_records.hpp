// SPDX-License-Identifier: MIT
// Findings of podlanectl doctor in the records on disk.
#pragma once

#include "loader/settings.hpp"
#include "maps/entries.hpp"
#include "tests/netns/doctor.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace podlane::test {

inline std::string settings_file(const Doctor &d) {
    const auto inside = require(net::enter(d.node_.ns()));
    return require(NodeSettings::open(kStateDirectory)).path();
}

inline std::string lease_file(const Doctor &d) { return d.node_.leases() + "/pods/" + d.made_.text4(); }

const std::vector<Fault> kRecordFaults = {
    {"LeaseFileGone", "lease-file", "but the file of its lease is gone", false,
     [](Doctor &d) { ASSERT_TRUE(fs::remove(lease_file(d))); }},
    {"LeaseFileEmpty", "lease-file", "but the file of its lease is empty", false,
     [](Doctor &d) { fs::resize_file(lease_file(d), 0); }},
    {"LeaseFileOfAnother", "lease-file", "but the file of its lease names container other, eth0", false,
     [](Doctor &d) { std::ofstream(lease_file(d)) << "other\r\neth0"; }},
    {"LeaseFileOfAnotherInterface", "lease-file", "names container ", false,
     [](Doctor &d) { std::ofstream(lease_file(d)) << d.made_.container->id() << "\r\nnet1"; }},
    {"AddressGivenTwice", "address-entry", "is another interface's", false,
     [](Doctor &d) {
         const Pod &other = d.keep(Json::object());
         const auto endpoints = d.open(&open_endpoints);
         const auto key = require(make_endpoint_key(other.container->id(), "eth0"));
         endpoint record = *require(endpoints.find(key));
         record.addresses[0] = d.made_.v4;
         require(endpoints.update(key, record));
         const auto addresses = d.open(&open_addresses);
         address value = *require(addresses.find({network_id("pods"), d.made_.v4}));
         value.ifindex = other.ifindex;
         require(addresses.update({network_id("pods"), d.made_.v4}, value));
     }},
    {"StateDirectoryOpenToOthers", "state-directory", "/var/lib/podlane of records has mode 0755", true,
     [](Doctor &) { ASSERT_EQ(chmod(kStateDirectory, 0755), 0); }},
    {"RecordsOfAnotherUser", "state-directory", "has mode 0700 and belongs to user 65534", true,
     [](Doctor &d) {
         ASSERT_EQ(chown(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory().c_str(), 65534, 0), 0);
     }},
    {"StateDirectoryReadOnly", "state-writable", "Read-only file system", false,
     behind("mount --bind /var/lib/podlane /var/lib/podlane && mount -o remount,bind,ro /var/lib/podlane")},
    {"StateDirectoryFull", "state-writable", "No space left on device", false,
     behind("mount -t tmpfs -o size=4k,mode=0700 none /var/lib/podlane && "
            "{ cat /dev/zero > /var/lib/podlane/fill 2> /dev/null || true; }")},
    {"StateDirectoryWithoutInodes", "state-writable", "No space left on device", false,
     behind("mount -t tmpfs -o nr_inodes=1,mode=0700 none /var/lib/podlane")},
    {"StateDirectoryIsAFile", "state-writable", "Not a directory", false,
     [](Doctor &d) {
         const std::string records = AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory();
         fs::remove_all(records);
         std::ofstream(records) << "a file\n";
     }},
    {"DirectoryInTheFilesPlace", "state-writable", "/.generation: Is a directory", false,
     [](Doctor &d) {
         const std::string records = AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory();
         fs::remove(records + "/.generation");
         fs::create_directory(records + "/.generation");
     }},
    {"RecordsAreALinkToNothing", "state-writable", "is a link that leads to nothing", false,
     [](Doctor &d) {
         const std::string records = AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory();
         fs::remove_all(records);
         fs::create_symlink("/nonexistent/records", records);
     }},
    {"DirectoryInTheTurnsPlace", "state-writable", "/.turns: Is a directory", false,
     behind("mount -t tmpfs -o mode=0700 none /var/lib/podlane && mkdir /var/lib/podlane/.turns")},
    {"FileInTheLeasesPlace", "state-writable", "/.held: Not a directory", false,
     [](Doctor &d) {
         std::ofstream(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory() + "/.held") << "a file\n";
     }},
    {"MasqueradeAndRecordGone", "masquerade", "that masquerade", false, // torn_record_test: of two pods it is repaired
     [](Doctor &d) {
         const Pod &made = d.keep({{"ipMasq", true}});
         fs::remove(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory() + "/" + made.container->id() +
                    ":eth0");
         d.on_node("nft flush ruleset");
     }},
    {"AddressOfNoPodMasqueraded", "masqueraded", "masquerades what no pod of network pods needs: 203.0.113.7", true,
     [](Doctor &d) {
         d.keep({{"ipMasq", true}});
         d.on_node("nft add element inet podlane-pods pods4 { 203.0.113.7 }");
     }},
    {"RecordsOfAnEarlierBoot", "earlier-boot", "are on record in network renamed: 2", false,
     [](Doctor &d) {
         const AttachmentRecords records(d.node_.dir() + "/state", d.node_.bpffs());
         d.setup_ += "mount --bind " + d.node_.dir() + "/state /var/lib/podlane && ";
         AttachmentRecord record;
         record.ifname = "eth0";
         record.network = "renamed";
         record.root = d.node_.bpffs();
         for (const std::string id : {"one", "two"}) {
             record.container_id = id;
             require(records.write(record));
         }
     },
     false},
    {"AddUnfinished", "unfinished", ", eth0 in network pods of ", false,
     [](Doctor &d) {
         const auto container = d.node_.container();
         d.node_.put_plugin("host-local", "#!/bin/sh\nkill -9 $PPID\n");
         (void)d.node_.cni("ADD", d.node_.config(), *container);
         const AttachmentRecords records(kStateDirectory, d.node_.bpffs());
         AttachmentRecord record = *require(records.find(container->id(), "eth0"));
         record.created_boottime_ns = 0; // else it may be under way
         require(records.write(record));
     },
     false},
    {"DeadAfterLostMaps", "dead", "are on record in network pods: 1", false,
     [](Doctor &d) {
         const Pod made = d.make({{"ipMasq", true}});
         fs::remove_all(d.node_.bpffs());
         d.lose_namespace(made);
     }},
    {"RecordEmpty", "torn-record", "the record of container dead, eth0 is torn", false,
     [](Doctor &d) {
         std::ofstream(AttachmentRecords(kStateDirectory, d.node_.bpffs()).directory() + "/dead:eth0").close();
     },
     false},
    // As a `bandwidth set` leaves it that is killed between the two.
    {"LimitWithoutFlag", "limit-flag", "in bandwidths_v1 is not enforced", true,
     [](Doctor &d) {
         const endpoint before = d.record(d.made_);
         ASSERT_EQ(d.ctl("bandwidth set " + d.host() + " --egress 8M --ingress 8M").rc, 0);
         require(d.open(&open_endpoints).update(require(make_endpoint_key(d.made_.container->id(), "eth0")), before));
         require(d.open(&open_interfaces).update(d.made_.ifindex, make_interface(before)));
         for (const ip_addr &addr : addresses_in(before))
             require(d.open(&open_addresses).update({before.network, addr}, make_address(before)));
     }},
    {"SettingsEmpty", "settings-file", "cannot be read", false,
     [](Doctor &d) { std::ofstream(settings_file(d)).close(); }},
    {"SettingsAreADirectory", "settings-file", "cannot be read", false,
     [](Doctor &d) {
         fs::remove(settings_file(d));
         fs::create_directory(settings_file(d));
     }},
};

} // namespace podlane::test
