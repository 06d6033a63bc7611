// SPDX-License-Identifier: MIT
// The model with limits that let all through, so that each frame shows who is charged for it.
#pragma once

#include "tests/packet/promise_model.hpp"

namespace podlane::packet {

class LimitedModel : public PromiseModel {
  protected:
    void prepare() override {
        limit(node().pod, {"198.19.0.0/24", "2001:db8:cafe::9/128", "::/8"},
              {"203.0.113.9/32", "2001:db8:cafe::2/127", "198.19.0.0/16"});
        limit(node().peer, {}, {});
        for (const char *one : {"203.0.113.2/32", "2001:db8::10/127"})
            node().peer.limits.limited_prefixes.at(LIMIT_INGRESS).shaped.push_back(*parse_prefix(one));
        PromiseModel::prepare();
        limits_.emplace(require(open_limit_states(node().root(), Access::read_only)));
        limited_ = {&node().pod, &node().peer};
    }
    static void limit(Pod &pod, const std::vector<const char *> &free_to, const std::vector<const char *> &free_from) {
        constexpr std::uint64_t kRate = 100'000'000'000, kBurst = 1'000'000'000'000;
        pod.limits.bandwidth = {kRate, kBurst, kRate, kBurst};
        for (const char *one : free_to)
            pod.limits.limited_prefixes.at(LIMIT_EGRESS).unshaped.push_back(*parse_prefix(one));
        for (const char *one : free_from)
            pod.limits.limited_prefixes.at(LIMIT_INGRESS).unshaped.push_back(*parse_prefix(one));
    }
};

} // namespace podlane::packet
