// Short waits for RCU, for the length of a scope: attaching to tcx and removing a link are made of them.
//
// The kernel waits for a grace period with the lock of all network configuration held: milliseconds, in which nobody
// else's interface can be set up either. For its own removal of links it asks for an expedited one, which takes
// microseconds; what it waits for with tcx it does not (6.6 to 6.18). /sys/kernel/rcu_expedited asks for all.
#pragma once

#include "maps/fd.hpp"

namespace podlane {

// The last of those that live at a time ends it; nobody waits for another. Without access to that file, or where the
// kernel was told otherwise (rcupdate.rcu_normal, or a value of somebody else's, which stays), waits are as long as
// they are. The value written says that it is ours: where a call was killed meanwhile, the next one takes it back.
class ExpeditedRcu {
  public:
    ExpeditedRcu();
    ~ExpeditedRcu();
    ExpeditedRcu(const ExpeditedRcu &) = delete;
    ExpeditedRcu &operator=(const ExpeditedRcu &) = delete;
    ExpeditedRcu(ExpeditedRcu &&) = delete;
    ExpeditedRcu &operator=(ExpeditedRcu &&) = delete;

  private:
    Fd file_; // with a shared lock, while the value is ours
};

} // namespace podlane
