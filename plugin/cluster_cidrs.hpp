// SPDX-License-Identifier: MIT
// A network's cluster CIDRs in the maps.
#pragma once

#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/plan.hpp"

#include <cstdint>
#include <vector>

namespace podlane {

// `are_right` becomes false if the value of one is not the planned one.
Result<std::vector<cluster_cidr_key>> cidrs_of(const Tables &tables, std::uint32_t network, bool *are_right = nullptr);
std::vector<cluster_cidr_key> keys_of(const NetworkPlan &plan);
std::vector<Prefix> cidr_prefixes(const std::vector<cluster_cidr_key> &keys);
bool is_in(const std::vector<cluster_cidr_key> &keys, const cluster_cidr_key &key);
bool are_in(const std::vector<cluster_cidr_key> &keys, const std::vector<cluster_cidr_key> &all);

// For an endpoint that is repaired: takes the cluster CIDRs that the maps have, if they include the configuration's. An
// ADD whose pod is deleted since may have been the newest.
Result<void> keep_cidrs(const Tables &tables, cni::Config &config);

// Its cluster CIDRs from now on. New ones come before old ones go.
Result<void> put_cidrs(const Tables &tables, std::uint32_t network, const std::vector<cluster_cidr_key> &wanted);

// Whether those of the newest ADD are there. If these are not kept: those of the configuration or of the newest living
// pod.
Result<bool> has_cidrs(const cni::Config &config, const Tables &tables, const endpoint &record);

} // namespace podlane
