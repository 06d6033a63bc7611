// SPDX-License-Identifier: MIT
#include "loader/upgrade.hpp"

#include "loader/attach.hpp"
#include "loader/host_veth.hpp"
#include "loader/migrate.hpp"
#include "loader/net/link.hpp"
#include "loader/node_netns.hpp"
#include "loader/object.hpp"
#include "loader/own_addresses.hpp"
#include "loader/pace.hpp"
#include "loader/pin_again.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "loader/wrong_pins.hpp"
#include "maps/tables.hpp"
#include "maps/errors.hpp"

#include <bpf/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace podlane {
namespace {

Result<bool> is_there(std::uint32_t ifindex) { return !TRY(net::link_name(ifindex)).empty(); }

// A pin below `directory`; no descriptor if it is not there.
Result<Fd> open_pin(const std::string &directory, std::string_view name) {
    Fd fd(bpf_obj_get((directory + "/" + std::string(name)).c_str()));
    if (!fd && errno != ENOENT)
        return system_error(ErrorCode::bpf, "opening " + directory + "/" + std::string(name), errno);
    return fd;
}

// Sizes and mark of the running version. A map that was not there before takes the default.
Result<LoadSettings> running_settings(const std::string &root) {
    LoadSettings settings;
    const auto size_of = [&](const char *name, std::uint32_t &entries) -> Result<void> {
        Fd map = TRY(open_pin(live_directory(root), name));
        const std::string other = map ? std::string{} : TRY(other_version(root, name));
        if (!other.empty())
            map = TRY(open_pin(live_directory(root), other));
        if (map)
            entries = TRY(map_facts(map.get())).max_entries;
        return {};
    };
    TRY(size_of(PODLANE_MAP_ENDPOINTS, settings.endpoints));
    TRY(size_of(PODLANE_MAP_PATHS, settings.paths));
    Fd program = TRY(open_pin(live_directory(root), PODLANE_PROGRAM_FROM_POD));
    if (!program) // a pin that was deleted
        program = TRY(open_pin(live_directory(root), PODLANE_PROGRAM_FROM_UPLINK));
    if (program)
        TRY(read_constants(program.get(), settings));
    settings.conntrack = true; // programs of before may not have queried it
    return settings;
}

// The work on one hook.
struct Place {
    std::uint32_t ifindex;
    Hook hook;
    const char *program;
    HookKind kind;
};

class Upgrade {
  public:
    Upgrade(const std::string &root, std::string loading)
        : root_(root), live_(live_directory(root)), loading_(std::move(loading)) {}

    Result<Upgraded> run();

  private:
    Result<void> run_unprotected();
    Result<void> carry_maps();
    Result<void> carry_slots();
    Result<void> carry_late();
    void erase_old_slots();
    Result<void> note_programs();
    Result<void> complete_egress_routes() const;
    Result<std::vector<Place>> places() const;
    Result<void> add_places(std::uint32_t ifindex, HookKind otherwise, const char *ingress, const char *egress,
                            std::vector<Place> &all) const;
    Result<void> replace_programs();
    Result<void> roll_back();

    const std::string &root_;
    std::string live_;
    std::string loading_;
    Upgraded report_;
    std::map<std::string_view, Fd> old_programs_;
    std::map<std::string_view, Fd> new_programs_;
    std::vector<Place> replaced_;
    std::vector<source_route_key> old_slots_;
};

Result<void> Upgrade::carry_maps() {
    for (const std::string_view name : kMapNames) {
        const Fd same = TRY(open_pin(live_, name));
        const std::string other = same ? std::string(name) : TRY(other_version(root_, name));
        UpgradedMap &map = report_.maps.emplace_back(UpgradedMap{std::string(name), other});
        if (same || other.empty())
            continue;
        if (name == PODLANE_MAP_EVENTS)
            continue; // of the moment
        const Fd from = TRY(open_pin(live_, other));
        const Fd to = TRY(open_pin(loading_, name));
        map.carried = TRY(migrate_map(from.get(), to.get(), Carry::all));
    }
    return {};
}

// Before there was source_slots_v1, source_route_v1 held slots as well, under addresses ::FAMILY:NUMBER; number 0 said
// that an uplink has no IPv4 address. The running programs read them there until they are replaced.
Result<void> Upgrade::carry_slots() {
    const auto routes = TRY(SourceRoutes::open(loading_ + "/" PODLANE_MAP_SOURCE_ROUTES, Access::read_only));
    const auto slots = TRY(SourceSlots::open(loading_ + "/" PODLANE_MAP_SOURCE_SLOTS, Access::read_write));
    const auto uplinks = TRY(Uplinks::open(loading_ + "/" PODLANE_MAP_UPLINKS, Access::read_write));
    for (const auto &[key, route] : TRY(routes.entries())) {
        if (key.source == route.source)
            continue;
        old_slots_.push_back(key);
        const std::uint32_t is_ipv4 = key.source.word[2];
        const std::uint32_t number = key.source.word[3];
        auto uplink_entry = TRY(uplinks.find(key.ifindex));
        if (number != 0) {
            TRY(slots.update({key.ifindex, is_ipv4, number}, route));
        } else if (uplink_entry) {
            uplink_entry->flags |= UPLINK_UNNUMBERED;
            TRY(uplinks.update(key.ifindex, *uplink_entry));
        }
    }
    return {};
}

// An entry that stays is of no harm: the programs compare the address.
void Upgrade::erase_old_slots() {
    if (const auto routes = open_source_routes(root_, Access::read_write))
        for (const source_route_key &key : old_slots_)
            static_cast<void>(routes->remove(key));
}

// Flows that the old programs cached while the new ones were attached.
Result<void> Upgrade::carry_late() {
    for (const UpgradedMap &map : report_.maps)
        if (map.name == PODLANE_MAP_PATHS && !map.was.empty() && map.was != map.name)
            TRY(migrate_map(TRY(open_pin(live_, map.was)).get(), TRY(open_pin(loading_, map.name)).get(),
                            Carry::missing));
    return {};
}

Result<void> Upgrade::note_programs() {
    for (const std::string_view name : kProgramNames) {
        Fd now = TRY(open_pin(loading_, name));
        if (!now)
            continue;
        const ProgramFacts facts = TRY(program_facts(now.get()));
        UpgradedProgram program{std::string(name), 0, facts.id, {}, facts.tag};
        if (Fd old = TRY(open_pin(live_, name))) {
            const ProgramFacts was = TRY(program_facts(old.get()));
            program.old_id = was.id;
            program.old_tag = was.tag;
            old_programs_.emplace(name, std::move(old));
        }
        new_programs_.emplace(name, std::move(now));
        report_.programs.push_back(std::move(program));
    }
    return {};
}

// Adds what an earlier version has not made for endpoints of networks with an egress route. The rules stay if the
// upgrade fails: they go with the last network.
Result<void> Upgrade::complete_egress_routes() const {
    const auto interfaces = TRY(Interfaces::open(loading_ + "/" PODLANE_MAP_INTERFACES, Access::read_only));
    const auto kept = TRY(KeptPaths::open(loading_ + "/" PODLANE_MAP_KEPT_PATHS, Access::read_write));
    bool any = false;
    for (const auto &[ifindex, entry] : TRY(interfaces.entries())) {
        if ((entry.flags & INTERFACE_EGRESS_ROUTE) == 0)
            continue;
        any = true;
        if (!TRY(kept.find(ifindex)))
            TRY(kept.update(ifindex, kept_paths{}));
    }
    return any ? put_own_address_rules() : Result<void>{};
}

Result<void> Upgrade::add_places(std::uint32_t ifindex, HookKind otherwise, const char *ingress, const char *egress,
                                 std::vector<Place> &all) const {
    for (const auto &[hook, program] : {std::pair(Hook::egress, egress), std::pair(Hook::ingress, ingress)}) {
        const auto ours = TRY(attached(ifindex, hook));
        all.push_back(
            {ifindex, hook, program, ours.empty() ? TRY(usable_kind(ifindex, otherwise)) : ours.front().kind});
    }
    return {};
}

Result<std::vector<Place>> Upgrade::places() const {
    std::vector<Place> all;
    const auto endpoints = TRY(Endpoints::open(loading_ + "/" PODLANE_MAP_ENDPOINTS, Access::read_only));
    const auto interfaces = TRY(Interfaces::open(loading_ + "/" PODLANE_MAP_INTERFACES, Access::read_only));
    net::Netlink host = TRY(net::Netlink::open());
    // Programs drop what an interface without an entry sends: the old ones may work on a map that has one.
    for (const auto &[key, record] : TRY(endpoints.entries()))
        if (record.ifindex != 0 && TRY(interfaces.find(record.ifindex)) &&
            TRY(find_host_veth(host, record))) // whatever it is called by now
            TRY(add_places(record.ifindex, hook_kind_of(record.attach), PODLANE_PROGRAM_FROM_POD,
                           PODLANE_PROGRAM_TO_POD, all));
    const auto uplinks = TRY(Uplinks::open(loading_ + "/" PODLANE_MAP_UPLINKS, Access::read_only));
    for (const std::uint32_t ifindex : TRY(uplinks.keys()))
        if (TRY(is_there(ifindex)))
            TRY(add_places(ifindex, preferred_kind(), PODLANE_PROGRAM_FROM_UPLINK, PODLANE_PROGRAM_TO_UPLINK, all));
    std::ranges::stable_sort(all, {}, &Place::ifindex);
    return all;
}

Result<void> Upgrade::replace_programs() {
    for (const Place &place : TRY(places())) {
        replaced_.push_back(place); // also if it fails: perhaps half of it is done
        auto done = attach(place.ifindex, place.hook, place.kind, new_programs_.at(place.program).get());
        if (done)
            ++report_.hooks;
        else if (TRY(is_there(place.ifindex)))
            return done;
        else
            replaced_.pop_back(); // a pod that has gone meanwhile
    }
    return {};
}

// Attaches the old programs again, on every hook that has a new one.
Result<void> Upgrade::roll_back() {
    Errors errors;
    for (const Place &place : replaced_) {
        const auto old = old_programs_.find(place.program);
        const auto ours = attached(place.ifindex, place.hook);
        if (old == old_programs_.end() || (ours && ours->empty()))
            continue;
        auto done = ours ? attach(place.ifindex, place.hook, place.kind, old->second.get()) : ours.error();
        if (done)
            continue;
        const auto there = is_there(place.ifindex);
        if (!there || *there)
            errors.add(std::move(done));
    }
    return std::move(errors).result();
}

Result<void> Upgrade::run_unprotected() {
    TRY(load_into(loading_, TRY(running_settings(root_)), live_));
    TRY(note_programs());
    TRY(carry_maps());
    TRY(carry_slots());
    TRY(complete_egress_routes());
    TRY(replace_programs());
    TRY(carry_late());
    return publish(root_, loading_);
}

Result<Upgraded> Upgrade::run() {
    auto done = run_unprotected();
    if (done) {
        erase_old_slots();
        return std::move(report_);
    }
    Errors errors;
    errors.add(std::move(done));
    const auto rolled_back = roll_back();
    errors.add(rolled_back);
    errors.add(remove_pins(loading_));
    Error failed = std::move(errors).result().error();
    if (failed.hint.empty())
        failed.hint = rolled_back ? "the previous version stays in use"
                                  : "some programs are the new version's: repeat podlanectl upgrade";
    return failed;
}

// Pods do without it: is_current() does not miss it. Takes the lock.
Result<Upgraded> complete_pacing(const std::string &root) {
    Upgraded report;
    report.needed = false;
    if (!TRY(pacing_fault(root)))
        return report;
    const std::string live = live_directory(root);
    UpgradedProgram program{PODLANE_PROGRAM_PACE};
    if (const Fd old = TRY(open_pin(live, PODLANE_PROGRAM_PACE))) {
        const ProgramFacts was = TRY(program_facts(old.get()));
        program.old_id = was.id;
        program.old_tag = was.tag;
    }
    TRY(restore_pacing(root));
    const Fd now = TRY(open_pin(live, PODLANE_PROGRAM_PACE));
    if (!now || TRY(pacing_fault(root))) // a kernel without cgroup v2
        return report;
    const ProgramFacts facts = TRY(program_facts(now.get()));
    program.new_id = facts.id;
    program.new_tag = facts.tag;
    report.needed = true;
    report.programs.push_back(std::move(program));
    return report;
}

} // namespace

Result<bool> is_current(const std::string &root) {
    auto whole = check_pins(root);
    if (whole)
        whole = refuse_wrong_pins(root);
    if (!whole)
        return whole.error().code == ErrorCode::plugin_not_available ? Result<bool>(false) : std::move(whole).error();
    for (const std::string_view name : kProgramNames) {
        const Fd program = TRY(open_pin(live_directory(root), name));
        if (!program)
            continue;
        const Constants constants = TRY(program_constants(program.get()));
        const auto build = constants.find("podlane_build");
        if (build == constants.end() || build->second != own_build())
            return false;
    }
    return true;
}

Result<Upgraded> upgrade(const std::string &root, bool always) {
    std::vector<std::string> pins;
    {
        const Lock lock = TRY(Lock::exclusive(root));
        if (!TRY(is_pinned(live_directory(root))))
            return Error{ErrorCode::missing, "there is nothing of Podlane below " + root + " to upgrade",
                         "no pod was set up since the node booted; the first ADD loads the new version"};
        TRY(restore_netns(root, kStateDirectory)); // the new pins name this one, whosever the maps are
        const auto is_needed = [&]() -> Result<bool> { return always || !TRY(is_current(root)); };
        if (TRY(is_needed())) {
            TRY(remove_wrong_pins(root));
            pins = TRY(pin_again(root));
        }
        if (TRY(is_needed())) {
            Upgraded report = TRY(Upgrade(root, TRY(make_loading_directory(root))).run());
            report.pins = std::move(pins);
            return report;
        }
        TRY(remove_leftovers(root)); // of one that was killed after it had published
    }
    Upgraded report = TRY(complete_pacing(root));
    report.needed = report.needed || !pins.empty();
    report.pins = std::move(pins);
    return report;
}

Result<void> complete_pins(const std::string &root) {
    auto checked = check_pins(root);
    if (checked || !TRY(maps_of_other_versions(root)).empty())
        return checked;
    {
        const Lock lock = TRY(Lock::exclusive(root));
        TRY(pin_again(root));
    }
    if (!check_pins(root)) // else programs of another build stay
        TRY(upgrade(root, false));
    return {};
}

} // namespace podlane
