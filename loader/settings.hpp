// SPDX-License-Identifier: MIT
// Settings of the node (sysctls) that Podlane changed, on disk with the values they had before: for uninstall and
// doctor.
#pragma once

#include "loader/changed_setting.hpp"
#include "loader/net/sysctl.hpp"
#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane {

enum class Change {
    none,     // it had the value already
    changed,  // and its former value is on disk
    replaced, // the same; and the file has replaced one that was damaged: former values that were in that are lost
    kept,     // it was changed before, and another program has changed it back: that one decides
};

// One file for each network namespace, valid for one boot: settings do not outlive the kernel.
class NodeSettings {
  public:
    // Of the calling thread's network namespace.
    static Result<NodeSettings> open(const std::string &state_directory);

    // Writes a setting, and records the value it had before. If the setting does not exist, nothing happens.
    [[nodiscard]] Result<Change> change(const net::SysctlPath &path, const std::string &value) const;
    // The same, but insists if the setting was changed back.
    [[nodiscard]] Result<Change> enforce(const net::SysctlPath &path, const std::string &value) const;

    // In the order in which they were first changed. ErrorCode::decode_failure if the file is damaged.
    [[nodiscard]] Result<std::vector<ChangedSetting>> list() const;
    // Writes the former value unless the setting was changed meanwhile, and forgets the setting. false: was changed. If
    // it cannot be forgotten, it stays as it was set.
    [[nodiscard]] Result<bool> restore(const ChangedSetting &setting) const;
    // Removes a file that is damaged.
    [[nodiscard]] Result<void> discard() const;

    [[nodiscard]] std::string path() const { return directory_ + "/" + file_; }

  private:
    NodeSettings(std::string directory, std::string file, std::string boot)
        : directory_(std::move(directory)), file_(std::move(file)), boot_(std::move(boot)) {}
    [[nodiscard]] Result<Change> record(const ChangedSetting &setting) const;
    [[nodiscard]] Result<void> forget(const std::string &name) const;

    std::string directory_;
    std::string file_; // in it
    std::string boot_;
};

} // namespace podlane
