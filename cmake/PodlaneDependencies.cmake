# SPDX-License-Identifier: MIT
# The libraries of Debian 12 that Podlane links, as podlane::bpf, podlane::nl, podlane::pcap and podlane::json.

function(podlane_require_library name package)
    set(file ${name})
    if(PODLANE_STATIC AND NOT PODLANE_SANITIZE)
        set(file lib${name}.a)
    endif()
    find_library(PODLANE_LIB_${name} NAMES ${file})
    if(NOT PODLANE_LIB_${name})
        message(FATAL_ERROR "${file} is missing: apt-get install ${package} (or run tools/setup)")
    endif()
endfunction()

function(podlane_require_header header package out)
    find_path(${out} NAMES ${header})
    if(NOT ${out})
        message(FATAL_ERROR "${header} is missing: apt-get install ${package} (or run tools/setup)")
    endif()
endfunction()

podlane_require_library(bpf libbpf-dev)
podlane_require_library(elf libelf-dev)
podlane_require_library(z zlib1g-dev)
podlane_require_library(nl-3 libnl-3-dev)
podlane_require_library(nl-route-3 libnl-route-3-dev)
podlane_require_library(pcap libpcap-dev)
podlane_require_header(pcap/pcap.h libpcap-dev PODLANE_PCAP_INCLUDE)
podlane_require_header(libnl3/netlink/netlink.h libnl-3-dev PODLANE_LIBNL_INCLUDE)
podlane_require_header(nlohmann/json.hpp nlohmann-json3-dev PODLANE_JSON_INCLUDE)

# A static libelf may need what no package has: that of Debian 13 lacks eu_search_tree_init().
if(PODLANE_STATIC AND NOT PODLANE_SANITIZE)
    include(CheckSourceCompiles)
    set(CMAKE_REQUIRED_LINK_OPTIONS -static)
    set(CMAKE_REQUIRED_LIBRARIES -lbpf -lelf -lz)
    check_source_compiles(CXX "extern \"C\" void *bpf_object__open(const char *);
        int main() { return bpf_object__open(\"\") != nullptr; }" PODLANE_LINKS_STATICALLY)
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    unset(CMAKE_REQUIRED_LIBRARIES)
    if(NOT PODLANE_LINKS_STATICALLY)
        message(STATUS "The static libbpf and libelf do not link here: podlane and podlanectl are linked dynamically")
        set(PODLANE_STATIC OFF)
    endif()
endif()

# By name, not by path: the executable's own -static (or its absence) chooses between .a and .so.
add_library(podlane_dep_bpf INTERFACE)
target_link_libraries(podlane_dep_bpf INTERFACE -lbpf -lelf -lz)
add_library(podlane::bpf ALIAS podlane_dep_bpf)

add_library(podlane_dep_nl INTERFACE)
target_include_directories(podlane_dep_nl SYSTEM INTERFACE ${PODLANE_LIBNL_INCLUDE}/libnl3)
target_link_libraries(podlane_dep_nl INTERFACE -lnl-route-3 -lnl-3 -lpthread -lm)
add_library(podlane::nl ALIAS podlane_dep_nl)

add_library(podlane_dep_pcap INTERFACE)
target_link_libraries(podlane_dep_pcap INTERFACE -lpcap)
add_library(podlane::pcap ALIAS podlane_dep_pcap)

# Of podlane-k8s alone, which is not built without them.
find_path(PODLANE_CURL_INCLUDE NAMES curl/curl.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE})
find_path(PODLANE_YAML_INCLUDE NAMES yaml-cpp/yaml.h)
if(PODLANE_CURL_INCLUDE AND PODLANE_YAML_INCLUDE)
    add_library(podlane_dep_curl INTERFACE)
    target_include_directories(podlane_dep_curl SYSTEM INTERFACE ${PODLANE_CURL_INCLUDE} ${PODLANE_YAML_INCLUDE})
    target_link_libraries(podlane_dep_curl INTERFACE -lcurl -l:libyaml-cpp.a)
    add_library(podlane::curl ALIAS podlane_dep_curl)
else()
    message(STATUS "podlane-k8s is not built: it needs libcurl4-openssl-dev and libyaml-cpp-dev")
endif()

# Header-only, from the system's include directory.
add_library(podlane_dep_json INTERFACE)
add_library(podlane::json ALIAS podlane_dep_json)
