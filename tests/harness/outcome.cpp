// SPDX-License-Identifier: MIT
#include "tests/harness/outcome.hpp"

namespace podlane::test {

using testing::Field;
using testing::Property;

void PrintTo(const Output &output, std::ostream *stream) {
    *stream << "exit code " << output.rc << "\n" << output.out << output.err;
}

testing::Matcher<const std::string &> has_all(const Parts &parts) {
    std::vector<testing::Matcher<const std::string &>> all;
    for (const std::string &part : parts)
        all.emplace_back(HasSubstr(part));
    return testing::AllOfArray(all);
}

testing::Matcher<const Json &> has_members(const std::map<std::string, Json> &members) {
    std::vector<testing::Matcher<const Json &>> all;
    for (const auto &[name, value] : members) {
        const auto member = [name = name](const Json &of) {
            return of.is_object() && of.contains(name) ? of.at(name) : Json(Json::value_t::discarded);
        };
        all.emplace_back(testing::ResultOf("its member " + name, member, testing::Eq(value)));
    }
    return testing::AllOfArray(all);
}

testing::Matcher<const Reply &> succeeds() { return Field("rc", &Reply::rc, 0); }

testing::Matcher<const Reply &> fails_with(int code, const Parts &parts) {
    return AllOf(Field("rc", &Reply::rc, 1), Property("code", &Reply::code, code),
                 Property("message", &Reply::message, has_all(parts)));
}

Reply succeeded(Reply reply) {
    if (reply.rc != 0)
        throw std::runtime_error("expected success: " + reply.out + reply.err);
    return reply;
}

testing::Matcher<const Output &> prints(int rc, const Parts &parts) {
    return AllOf(Field("rc", &Output::rc, rc), Field("out", &Output::out, has_all(parts)));
}

testing::Matcher<const Output &> complains(int rc, const Parts &parts) {
    return AllOf(Field("rc", &Output::rc, rc), Field("err", &Output::err, has_all(parts)));
}

} // namespace podlane::test
