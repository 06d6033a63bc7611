// SPDX-License-Identifier: MIT
// Records of attachments on disk: what an ADD made, kept outside the bpffs, so that it can be removed or repaired after
// the maps are lost: a reboot, an unmount, deleted pins.
//
// One file an attachment, "CONTAINER:IFNAME", in a directory for each root of pins. ADD writes it before it makes
// anything, DEL removes it after everything else is gone. A write is a rename of a whole file, so a killed process
// leaves the old or the new one. What ADD learns later, it adds at the end. Nothing waits for the disk (a commit takes
// milliseconds, an ADD has a tenth of one to spare). A lease outlives a power cut, so the kernel begins to write its
// record at once; what else records name is in the kernel and gone with the power, and so are they if it came within
// half a minute. A checksum distinguishes what a power cut tore from what is whole. A torn file, or addition, counts as
// none; the file stays for a GC (plugin/torn_record.hpp), because it may be the only trace of a lease. A part of an
// addition to the record of a container's other interface is cut off by the container's next ADD, or the DEL of the
// killed one (plugin/groups.hpp).
#pragma once

#include "loader/state_file.hpp"
#include "maps/abi/endpoint.h"
#include "maps/errors.hpp"
#include "maps/result.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

// Hidden beside records and settings: the turns of calls, in the state directory; leases that are held, in a root's.
inline constexpr const char *kTurnsFile = ".turns";
inline constexpr const char *kHeldDirectory = ".held";

inline constexpr const char *kStateDirectory = "/var/lib/podlane";

struct AttachmentRecord {
    std::string container_id;
    std::string ifname;
    std::string network;
    std::string root;               // directory of the pins ("bpffs")
    std::string boot_id;            // of the boot in which it was made; another one: nothing of it is in the kernel
    std::uint64_t created_ns = 0;   // CLOCK_REALTIME
    std::uint64_t node_netns = 0;   // inode of the network namespace the plugin ran in
    std::string netns;              // CNI_NETNS
    std::uint64_t netns_cookie = 0; // of that namespace (loader/pod_namespace.hpp); 0: unknown
    std::string args;               // CNI_ARGS
    std::string path;               // CNI_PATH
    std::string config;             // standard input of the ADD
    std::string lease;              // result of the IPAM plugin; empty before it is known, and if Podlane has none
    std::string node_name;          // of the node, in the administrator's words
    std::string groups;             // a name a line
    std::string ipam_config;        // for the IPAM plugin, if it is another text than `config`
    std::string ipam_args;          // and CNI_ARGS with it
    std::string labels;             // "key=value" lines
    std::string annotations;        // "key=value" lines
    std::uint32_t uplink = 0;       // ifindex of the network's own uplink; 0: none
    bool only_lease = false;        // everything but the lease is removed already
    // CLOCK_BOOTTIME of that boot, which unlike the time of day nobody sets
    std::uint64_t created_boottime_ns = 0;
    // CLOCK_REALTIME; not 0: and the lease is held for a pod of this name (plugin/held_lease.hpp)
    std::uint64_t held_since_ns = 0, held_until_ns = 0;
    bool has_egress_rules = false;   // the host-side veth is in sets of nftables (plugin/egress_rules.hpp)
    std::optional<endpoint> entry{}; // as in endpoints_v1; none before it is known
    bool is_torn = false;            // the file goes on behind its whole parts; not a part of the file
    // In bytes, of the file and of its whole parts when it was read; not a part of the file
    std::size_t file_size = 0, whole_size = 0;
    std::string state_directory{}; // in which it was found; not a part of the file
};

// A record as a part of a file: the first one, or an addition to those before, whose fields it replaces if they are not
// empty or 0. None if the text does not begin with a whole part.
std::string record_text(const AttachmentRecord &record);
std::optional<AttachmentRecord> parse_record(std::string_view text);
// Whole or torn: what another version has written, that version removes.
bool is_of_other_version(std::string_view text);

// "key=value" lines; a key holds neither '=' nor a line end, a value no line end.
std::string lines_of(const std::map<std::string, std::string, std::less<>> &pairs);
std::map<std::string, std::string, std::less<>> pairs_in(std::string_view lines);

std::string record_file_name(const std::string &container_id, const std::string &ifname);
using RecordNames = std::set<std::string>;

// The records of one root of pins.
class AttachmentRecords {
  public:
    AttachmentRecords(const std::string &state_directory, const std::string &root);

    [[nodiscard]] const std::string &directory() const { return directory_; }

    // Creates the directories (mode 0700) if they are missing; an error if no file can be created there.
    [[nodiscard]] Result<void> prepare() const;
    // The same error, of directories that are there or could be created; creates nothing.
    [[nodiscard]] Result<void> check() const;
    [[nodiscard]] Result<void> write(const AttachmentRecord &record, Begin begin = Begin::at_once) const;
    // Adds to the file of the attachment what is not empty in `news`, as a whole or not at all. false: there is none.
    [[nodiscard]] Result<bool> add(const AttachmentRecord &news) const;
    // None if there is no whole file, or it is another attachment's, copied or renamed by another program.
    [[nodiscard]] Result<std::optional<AttachmentRecord>> find(const std::string &container_id,
                                                               const std::string &ifname) const;
    // All whole ones, in the order of their names. Torn files, those of another version, and those of another name than
    // their attachment's are passed over.
    [[nodiscard]] Result<std::vector<AttachmentRecord>> list() const;
    // The same, without those that cannot be read, each of which is in `unread`. Of those that are torn from the
    // beginning, `torn` gets what the files' names say: container and interface.
    [[nodiscard]] Result<std::vector<AttachmentRecord>>
    list(Errors &unread, std::vector<AttachmentRecord> *torn = nullptr, const RecordNames &without = {}) const;
    // The generation of the pins (Tables::generation) whose maps have been compared with these records; 0: none.
    [[nodiscard]] Result<std::uint64_t> seen_generation() const;
    [[nodiscard]] Result<void> note_generation(std::uint64_t generation) const;
    // Whether `podlanectl uninstall` has removed the pins: until a generation is noted, attachments that the maps do
    // not know are not lost, and a DEL restores none of them.
    [[nodiscard]] Result<bool> is_uninstalled() const;
    [[nodiscard]] Result<void> note_uninstalled() const;
    [[nodiscard]] Result<void> forget_uninstall() const;
    // A missing file is no error.
    [[nodiscard]] Result<void> erase(const std::string &container_id, const std::string &ifname) const;
    // Temporary files of writes that were killed.
    [[nodiscard]] Result<void> remove_unfinished() const;

  private:
    std::string state_directory_;
    std::string directory_;
};

// The records of all roots below a state directory, and below the default one: `stateDir` may have been edited.
Result<std::vector<AttachmentRecord>> list_all_records(const std::string &state_directory);
// `without`: files of this root that are not read.
Result<std::vector<AttachmentRecord>> list_all_records(const std::string &state_directory, Errors &unread,
                                                       const std::string &root = {}, const RecordNames &without = {});

// The roots of pins with records of this node's. Unlike a list of records it reads one of each.
std::set<std::string> roots_on_record(const std::string &state_directory, std::uint64_t node_netns, Errors &unread);

// The same attachment below other roots of pins of these directories, made by this node: for a DEL whose configuration
// names another root or state directory than its ADD's did.
Result<std::optional<AttachmentRecord>>
find_record_anywhere(const std::string &state_directory, const std::string &container_id, const std::string &ifname);

struct ThisNode {
    std::uint64_t netns = 0; // inode of the caller's network namespace
    std::string boot{};

    static Result<ThisNode> now();
    // In this boot.
    [[nodiscard]] bool has_made(const AttachmentRecord &record) const;
    // The network namespace of a node may have another number after a reboot; nothing of an earlier boot is alive, so
    // whoever finds its record may remove what is left.
    [[nodiscard]] bool may_have_made(const AttachmentRecord &record) const;
};

// Of the running kernel; changes with each boot.
Result<std::string> boot_id();

} // namespace podlane
