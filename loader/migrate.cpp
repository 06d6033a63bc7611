// SPDX-License-Identifier: MIT
#include "loader/migrate.hpp"

#include "loader/object.hpp"
#include "maps/map.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace podlane {
namespace {

Error unlike(std::string_view what) {
    return {ErrorCode::plugin_limited, std::string(what) + " is of another kind in the other version"};
}
Error too_much(std::string_view what) {
    return {ErrorCode::plugin_limited, std::string(what) + " does not fit into the other version's"};
}

bool is_number(const btf_type *type) { return btf_is_int(type) || btf_is_any_enum(type); }

bool is_signed(const btf_type *type) { return btf_is_int(type) && (btf_int_encoding(type) & BTF_INT_SIGNED) != 0; }

// Little endian, as the machines are that BPF and this code run on in one.
Result<void> convert_number(const Typed &from, const btf_type *source, const Typed &to) {
    std::array<std::uint8_t, 16> wide{};
    if (from.bytes.size() > wide.size() || to.bytes.size() > wide.size())
        return unlike("a number");
    const bool negative = is_signed(source) && (from.bytes.back() & 0x80U) != 0;
    wide.fill(negative ? 0xff : 0);
    std::ranges::copy(from.bytes, wide.begin());
    std::copy_n(wide.begin(), to.bytes.size(), to.bytes.begin());
    const auto lost = std::span(wide).subspan(to.bytes.size());
    if (std::ranges::any_of(lost, [&](std::uint8_t byte) { return byte != (negative ? 0xff : 0); }))
        return too_much("a number");
    return {};
}

Result<Typed> part(const Typed &whole, std::uint32_t type, std::size_t offset) {
    const auto size = btf__resolve_size(whole.types, type);
    const auto resolved = btf__resolve_type(whole.types, type);
    if (size < 0 || resolved < 0 || offset + static_cast<std::size_t>(size) > whole.bytes.size())
        return unlike("a field");
    return Typed{whole.types, static_cast<std::uint32_t>(resolved),
                 whole.bytes.subspan(offset, static_cast<std::size_t>(size))};
}

bool is_zero(std::span<const std::uint8_t> bytes) {
    return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

Result<void> convert_array(const Typed &from, const btf_type *source, const Typed &to, const btf_type *target) {
    const auto *old = btf_array(source);
    const auto *now = btf_array(target);
    for (std::uint32_t i = 0; i < old->nelems; ++i) {
        const std::size_t old_size = from.bytes.size() / old->nelems;
        const Typed element = TRY(part(from, old->type, i * old_size));
        if (i < now->nelems)
            TRY(convert(element, TRY(part(to, now->type, i * (to.bytes.size() / now->nelems)))));
        else if (!is_zero(element.bytes))
            return too_much("an array");
    }
    return {};
}

const btf_member *member_of(const Typed &whole, const btf_type *type, std::string_view name, std::uint32_t &index) {
    const btf_member *members = btf_members(type);
    for (index = 0; index < btf_vlen(type); ++index)
        if (name == btf__name_by_offset(whole.types, members[index].name_off))
            return &members[index];
    return nullptr;
}

Result<void> convert_struct(const Typed &from, const btf_type *source, const Typed &to, const btf_type *target) {
    constexpr std::uint32_t kBits = 8;
    for (std::uint32_t i = 0; i < btf_vlen(target); ++i) {
        const btf_member &member = btf_members(target)[i];
        const std::string name = btf__name_by_offset(to.types, member.name_off);
        std::uint32_t index = 0;
        const btf_member *old = member_of(from, source, name, index);
        if (old == nullptr || name == "reserved")
            continue;
        if (btf_member_bitfield_size(target, i) != 0 || btf_member_bitfield_size(source, index) != 0)
            return unlike(name);
        const auto old_part = part(from, old->type, btf_member_bit_offset(source, index) / kBits);
        const auto new_part = part(to, member.type, btf_member_bit_offset(target, i) / kBits);
        if (!old_part || !new_part)
            return unlike(name);
        if (auto done = convert(*old_part, *new_part); !done)
            return std::move(done).error().context(name);
    }
    return {};
}

// A map's layout, and room for one key and one value of it (per-CPU maps: one for each CPU).
struct Layout {
    bpf_map_info info{};
    Btf types{nullptr, &btf__free};
    std::size_t values = 1;
    std::size_t stride = 0; // from one CPU's value to the next

    static Result<Layout> of(int map);
    [[nodiscard]] std::string name() const { return info.name; }
    [[nodiscard]] Typed key(Bytes &bytes) const { return {types.get(), info.btf_key_type_id, bytes}; }
    [[nodiscard]] Typed value(Bytes &bytes, std::size_t cpu) const {
        return {types.get(), info.btf_value_type_id, std::span(bytes).subspan(cpu * stride, info.value_size)};
    }
};

Result<Layout> Layout::of(int map) {
    constexpr std::size_t kWord = 8;
    Layout layout;
    __u32 size = sizeof layout.info;
    if (bpf_obj_get_info_by_fd(map, &layout.info, &size) != 0)
        return system_error(ErrorCode::bpf, "querying a map", errno);
    if (layout.info.btf_id == 0 || layout.info.btf_key_type_id == 0 || layout.info.btf_value_type_id == 0)
        return Error{ErrorCode::plugin_limited, "map " + layout.name() + " does not say what is in it"};
    layout.types = TRY(load_btf(layout.info.btf_id));
    layout.stride = layout.info.value_size;
    if (layout.info.type == BPF_MAP_TYPE_PERCPU_HASH || layout.info.type == BPF_MAP_TYPE_PERCPU_ARRAY) {
        layout.values = TRY(possible_cpus());
        layout.stride = (layout.info.value_size + kWord - 1) / kWord * kWord;
    }
    return layout;
}

} // namespace

Result<Btf> load_btf(std::uint32_t id) {
    Btf types(btf__load_from_kernel_by_id(id), &btf__free);
    if (!types)
        return system_error(ErrorCode::bpf, "reading type information from the kernel", errno);
    return types;
}

Result<void> convert(const Typed &from, const Typed &to) {
    const btf_type *source = btf__type_by_id(from.types, static_cast<__u32>(btf__resolve_type(from.types, from.type)));
    const btf_type *target = btf__type_by_id(to.types, static_cast<__u32>(btf__resolve_type(to.types, to.type)));
    if (source == nullptr || target == nullptr)
        return unlike("a value");
    if (is_number(source) && is_number(target))
        return convert_number(from, source, to);
    if (btf_is_array(source) && btf_is_array(target))
        return convert_array(from, source, to, target);
    if (btf_is_struct(source) && btf_is_struct(target))
        return convert_struct(from, source, to, target);
    return unlike("a value");
}

Result<std::uint64_t> migrate_map(int from, int to, Carry which) {
    const Layout old = TRY(Layout::of(from));
    const Layout now = TRY(Layout::of(to));
    std::uint64_t carried = 0;
    for (Bytes &old_key : TRY(detail::keys(from, old.name()))) {
        Bytes old_value(old.stride * old.values);
        if (!TRY(detail::find(from, old.name(), old_key.data(), old_value.data())))
            continue;
        Bytes key(now.info.key_size);
        Bytes value(now.stride * now.values);
        TRY(convert(old.key(old_key), now.key(key)));
        for (std::size_t cpu = 0; cpu < std::min(old.values, now.values); ++cpu)
            if (auto done = convert(old.value(old_value, cpu), now.value(value, cpu)); !done)
                return std::move(done).error().context("map " + old.name());
        const auto put = detail::write(to, now.name(), key.data(), value.data(),
                                       which == Carry::all ? Write::any : Write::must_not_exist);
        if (put)
            ++carried;
        else if (which == Carry::all || put.error().code != ErrorCode::already_exists)
            return put.error();
    }
    return carried;
}

Result<Constants> program_constants(int program_fd) {
    Constants constants;
    for (const auto &[map, info] : TRY(program_maps(program_fd))) {
        if (!std::string_view(info.name).ends_with(".rodata") || info.btf_id == 0)
            continue;
        const Btf types = TRY(load_btf(info.btf_id));
        const btf_type *section = btf__type_by_id(types.get(), info.btf_value_type_id);
        Bytes bytes(info.value_size);
        const std::uint32_t zero = 0;
        if (section == nullptr || !btf_is_datasec(section))
            continue;
        if (bpf_map_lookup_elem(map.get(), &zero, bytes.data()) != 0)
            return system_error(ErrorCode::bpf, "reading the constants of a program", errno);
        for (const btf_var_secinfo &var : std::span(btf_var_secinfos(section), btf_vlen(section))) {
            std::uint64_t value = 0;
            if (var.size > sizeof value || var.offset + var.size > bytes.size())
                continue;
            std::memcpy(&value, bytes.data() + var.offset, var.size);
            constants.emplace(btf__name_by_offset(types.get(), btf__type_by_id(types.get(), var.type)->name_off),
                              value);
        }
    }
    return constants;
}

} // namespace podlane
