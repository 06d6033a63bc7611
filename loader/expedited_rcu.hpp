// SPDX-License-Identifier: MIT
// Expedited RCU for the length of a scope: attaching to tcx and removing a link wait for grace periods.
//
// The kernel waits with the lock of all network configuration (RTNL) held: milliseconds in which no other interface can
// be set up. For its own removal of links it requests expedited grace periods, which take microseconds; for tcx it does
// not (6.6 to 6.18). /sys/kernel/rcu_expedited requests them for all.
#pragma once

#include "maps/fd.hpp"

namespace podlane {

// Of mode 0600: no other user's process can make a scope wait or keep it from ending.
inline constexpr const char *kExpeditedRcuLock = "/run/podlane-expedited-rcu.lock";

// The last of several concurrent scopes switches it off; none waits for another. Without access to these files, with
// rcupdate.rcu_normal, or with a foreign value in the file, which stays, grace periods take as long as they do. The
// value written marks it as Podlane's: if a call was killed, the next one of any kind restores the file.
class ExpeditedRcu {
  public:
    // From now on no scope of this process writes the file.
    static void forbid();
    // Restores the file if a killed call left it switched on, and no scope is open. true: it was, and is restored.
    static bool clean_up();

    ExpeditedRcu();
    ~ExpeditedRcu();
    ExpeditedRcu(const ExpeditedRcu &) = delete;
    ExpeditedRcu &operator=(const ExpeditedRcu &) = delete;
    ExpeditedRcu(ExpeditedRcu &&) = delete;
    ExpeditedRcu &operator=(ExpeditedRcu &&) = delete;

  private:
    Fd file_; // while the value is ours
    Fd lock_; // a shared one, as long
};

} // namespace podlane
