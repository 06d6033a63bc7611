# SPDX-License-Identifier: MIT
# The language, the warnings and the optimisation every C++ target is built with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # TRY() is a statement expression
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

find_program(PODLANE_CCACHE ccache)
if(PODLANE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # Without this it does not keep what is compiled with precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${PODLANE_CCACHE})
endif()

# A compiler that we have not met may warn of more: only the project's own builds stop at it.
set(PODLANE_WARNINGS "")
if(PODLANE_WERROR)
    set(PODLANE_WARNINGS -Werror)
endif()

# Everything that is compiled links this: "maps/ip.hpp" is found from the root of the checkout.
add_library(podlane_options INTERFACE)
target_include_directories(podlane_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(podlane_options INTERFACE -Wall -Wextra ${PODLANE_WARNINGS} -ffunction-sections -fdata-sections)
target_link_options(podlane_options INTERFACE -Wl,--gc-sections)
# The same bytes from every checkout: BTF has the names of files, and the build id is a hash of the debug information.
# The last that matches counts.
set(PODLANE_PREFIX_MAP -ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)
if(PODLANE_STATIC)
    target_compile_options(podlane_options INTERFACE ${PODLANE_PREFIX_MAP})
endif()

if(PODLANE_SANITIZE)
    target_compile_options(podlane_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                                     -fno-omit-frame-pointer)
    target_link_options(podlane_options INTERFACE -fsanitize=address,undefined)
endif()
if(PODLANE_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "PODLANE_FUZZ needs clang++: cmake --preset sanitize")
    endif()
    target_compile_options(podlane_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
