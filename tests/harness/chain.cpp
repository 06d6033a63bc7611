// SPDX-License-Identifier: MIT
#include "tests/harness/chain.hpp"

namespace podlane::test {

Json Chain::config(std::size_t index, const Json &previous) const {
    Json config = plugins_.at(index);
    config["cniVersion"] = version_;
    config["name"] = name_;
    for (const auto &[capability, value] : capability_args.items())
        if (config.contains("capabilities") && config["capabilities"].value(capability, false))
            config["runtimeConfig"][capability] = value;
    if (!previous.is_null())
        config["prevResult"] = previous;
    return config;
}

Reply Chain::call(const std::string &command, std::size_t index, const Json &previous,
                  const Container &container) const {
    return node_.cni(command, config(index, previous), container, variables);
}

Reply Chain::add(const Container &container) {
    Reply reply;
    Json previous;
    for (std::size_t i = 0; i < plugins_.size(); ++i) {
        reply = call("ADD", i, previous, container);
        if (reply.rc != 0)
            return reply;
        previous = reply.json;
    }
    result_ = previous;
    return reply;
}

Reply Chain::check(const Container &container, const std::string &except) const {
    Reply reply;
    for (std::size_t i = 0; i < plugins_.size(); ++i) {
        if (plugins_[i].at("type") == except)
            continue;
        reply = call("CHECK", i, result_, container);
        if (reply.rc != 0)
            break;
    }
    return reply;
}

Reply Chain::del(const Container &container, bool forgotten) const {
    Reply first;
    first.rc = 0;
    for (std::size_t i = plugins_.size(); i > 0; --i) {
        Reply reply = call("DEL", i - 1, forgotten ? Json() : result_, container);
        if (reply.rc != 0 && first.rc == 0)
            first = reply;
    }
    return first;
}

} // namespace podlane::test
