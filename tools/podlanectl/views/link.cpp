#include "tools/podlanectl/views/link.hpp"

#include "maps/fd.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace podlane::ctl {

LinkState link_state(std::uint32_t ifindex) {
    LinkState state;
    state.name = interface_name(ifindex);
    const Fd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (state.name.empty() || !socket_fd)
        return state;
    ifreq request{};
    std::ranges::copy(state.name, request.ifr_name);
    // It may go while we ask: then it is not there.
    if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) != 0)
        return state;
    state.there = true;
    state.admin_up = (request.ifr_flags & IFF_UP) != 0;
    state.carrier = (request.ifr_flags & IFF_RUNNING) != 0;
    if (ioctl(socket_fd.get(), SIOCGIFMTU, &request) == 0)
        state.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
    if (ioctl(socket_fd.get(), SIOCGIFHWADDR, &request) == 0) {
        Mac mac{};
        std::copy_n(request.ifr_hwaddr.sa_data, mac.size(), mac.begin());
        state.mac = to_string(mac);
    }
    return state;
}

} // namespace podlane::ctl
