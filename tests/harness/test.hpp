// SPDX-License-Identifier: MIT
// The common includes of test files: GoogleTest, and much used parts of the standard library and of the C library.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace podlane {

namespace fs = std::filesystem;
using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::Not, testing::StartsWith;

} // namespace podlane
