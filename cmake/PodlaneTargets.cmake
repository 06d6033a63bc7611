# SPDX-License-Identifier: MIT
# podlane_room(): a static library of the .cpp files in a directory. podlane_program(): a shipped executable.

# podlane_room(NAME DIR [ROOMS subdirectories...] [EXCLUDE files...] [LINK libs...]); a directory without sources is an
# empty library.
function(podlane_room name dir)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ROOMS;EXCLUDE;LINK")
    file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cpp)
    foreach(room IN LISTS arg_ROOMS)
        file(GLOB more CONFIGURE_DEPENDS ${dir}/${room}/*.cpp)
        list(APPEND sources ${more})
    endforeach()
    foreach(file IN LISTS arg_EXCLUDE)
        list(REMOVE_ITEM sources ${dir}/${file})
    endforeach()
    if(sources)
        add_library(${name} STATIC ${sources})
        target_link_libraries(${name} PUBLIC podlane_options ${arg_LINK})
    else()
        add_library(${name} INTERFACE)
        target_link_libraries(${name} INTERFACE podlane_options ${arg_LINK})
    endif()
endfunction()

# binutils' own: beside clang, CMAKE_OBJCOPY is llvm-objcopy, and that of LLVM 14 refuses to strip static glibc programs.
set(objcopy objcopy)
if(CMAKE_CROSSCOMPILING)
    set(objcopy ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-objcopy)
endif()
find_program(PODLANE_OBJCOPY ${objcopy} REQUIRED)

# The programs on a node are small; gdb finds the debug information beside it in the build directory.
function(podlane_strip name)
    add_custom_command(TARGET ${name} POST_BUILD
        COMMAND ${PODLANE_OBJCOPY} --only-keep-debug ${name} ${name}.debug
        COMMAND ${PODLANE_OBJCOPY} --strip-all --add-gnu-debuglink=${name}.debug ${name}
        WORKING_DIRECTORY $<TARGET_FILE_DIR:${name}>
        BYPRODUCTS ${name}.debug
        VERBATIM)
endfunction()

# podlane_program(NAME MAIN [LINK libs...]); nothing while MAIN does not exist.
function(podlane_program name main)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LINK")
    file(GLOB source CONFIGURE_DEPENDS ${main})
    if(NOT source)
        return()
    endif()
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${arg_LINK})
    if(PODLANE_STATIC AND NOT PODLANE_SANITIZE)
        # Not -static-pie: its start-up relocations dirty pages that otherwise stay shared with the file.
        # The linker warns of name service functions in libnl and libpcap. --no-warnings would hide missing symbols too.
        target_link_options(${name} PRIVATE -static)
        podlane_strip(${name})
    endif()
endfunction()

# Options of podlane_tests(): tested code is optimised, the tests themselves are built fast. The compiler of the programs
# takes a third of the time that g++ takes for them: it instantiates the templates of precompiled headers once.
set(PODLANE_TEST_OPTIONS -O0 -g1)
set(PODLANE_TEST_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
    list(APPEND PODLANE_TEST_OPTIONS -fpch-instantiate-templates -Xclang -fno-pch-timestamp -Wno-unused-command-line-argument)
    set(PODLANE_TEST_LAUNCHER ${PROJECT_BINARY_DIR}/compile-tests ${PODLANE_CLANG})
    list(JOIN CMAKE_CXX_COMPILER_LAUNCHER " " launcher)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/compile-tests @ONLY CONTENT [[
#!/bin/sh
clang=$1
shift 2 # the second is the compiler of what is shipped
case "$*" in
*" -x c++-header "*) # or it would include the one before
    output=${*##* -o }
    rm -f "${output%% *}" ;;
esac
exec @launcher@ "$clang" --driver-mode=g++ "$@"
]])
    file(CHMOD ${PROJECT_BINARY_DIR}/compile-tests PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endif()
find_program(PODLANE_LLD ld.lld)

# podlane_test_headers(NAME LINK libs... HEADERS headers...): precompiled for the tests that link the same.
function(podlane_test_headers name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;HEADERS")
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE podlane_options ${arg_LINK} GTest::gmock GTest::gtest_main)
    target_compile_options(${name} PRIVATE ${PODLANE_TEST_OPTIONS})
    target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF CXX_COMPILER_LAUNCHER "${PODLANE_TEST_LAUNCHER}")
endfunction()

# podlane_discover(EXECUTABLE PREFIX LABEL FILTER ALONE): a ctest for each case that the filter of gtest selects.
function(podlane_discover name prefix label filter alone)
    gtest_discover_tests(${name}
        TEST_PREFIX ${prefix}/
        TEST_FILTER "${filter}"
        TEST_LIST ${name}_${label}
        DISCOVERY_MODE PRE_TEST
        PROPERTIES LABELS ${label} TIMEOUT 300 RUN_SERIAL ${alone})
    # gtest_discover_tests() cannot pass a property that is a list.
    set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_${label}_environment.cmake)
    file(CONFIGURE OUTPUT ${include} @ONLY CONTENT [[
foreach(test IN LISTS @name@_@label@)
    set_tests_properties("${test}" PROPERTIES ENVIRONMENT "@PODLANE_TEST_ENVIRONMENT@")
endforeach()
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

# podlane_tests(LABEL [LINK libs...] [HEADERS target] [PROGRAMS] [WHOLE_BUT files...] [ALONE files...]
# [COMBINATIONS filter]): an executable for each tests/LABEL/*_test.cpp, and a ctest for each case in it, named
# LABEL/FILE/Suite.Case. The target tests_LABEL builds them all. LINK says what they test; if a target podlane_ROOM exists
# for FILE = ROOM_..., that too. HEADERS: of podlane_test_headers(). PROGRAMS: they run what is shipped. WHOLE_BUT: the
# cases of a file share what takes long to set up, and are one ctest, named LABEL/FILE; not so those of the files listed.
# ALONE: what these files measure or compare means nothing beside other tests. COMBINATIONS: cases that a filter of gtest selects are
# named and labelled so instead.
function(podlane_tests label)
    cmake_parse_arguments(PARSE_ARGV 1 arg "PROGRAMS" "HEADERS;COMBINATIONS" "LINK;WHOLE_BUT;ALONE")
    add_custom_target(tests_${label})
    file(GLOB sources CONFIGURE_DEPENDS ${label}/*_test.cpp)
    foreach(source IN LISTS sources)
        get_filename_component(stem ${source} NAME_WE)
        set(name ${label}_${stem})
        add_executable(${name} ${source})
        string(REGEX REPLACE "_.*" "" room ${stem})
        if(NOT arg_LINK AND TARGET podlane_${room})
            target_link_libraries(${name} PRIVATE podlane_${room})
        endif()
        target_link_libraries(${name} PRIVATE podlane_options ${arg_LINK} GTest::gmock GTest::gtest_main)
        target_compile_options(${name} PRIVATE ${PODLANE_TEST_OPTIONS})
        set_target_properties(${name} PROPERTIES UNITY_BUILD OFF CXX_COMPILER_LAUNCHER "${PODLANE_TEST_LAUNCHER}")
        if(arg_HEADERS)
            target_precompile_headers(${name} REUSE_FROM ${arg_HEADERS})
        endif()
        if(PODLANE_LLD AND NOT CMAKE_CROSSCOMPILING)
            target_link_options(${name} PRIVATE -fuse-ld=lld)
        endif()
        add_dependencies(tests_${label} ${name})
        if(arg_PROGRAMS)
            add_dependencies(${name} podlane podlanectl)
        endif()
        if(CMAKE_CROSSCOMPILING) # they do not run on this machine
            continue()
        endif()
        if(arg_WHOLE_BUT AND NOT stem IN_LIST arg_WHOLE_BUT)
            add_test(NAME ${label}/${stem} COMMAND ${name})
            set_tests_properties(${label}/${stem} PROPERTIES LABELS ${label} TIMEOUT 300
                SKIP_REGULAR_EXPRESSION "SKIPPED" ENVIRONMENT "${PODLANE_TEST_ENVIRONMENT}")
            continue()
        endif()
        set(filter "*")
        if(arg_COMBINATIONS)
            set(filter "-${arg_COMBINATIONS}")
            podlane_discover(${name} combinations/${stem} combinations "${arg_COMBINATIONS}" FALSE)
        endif()
        podlane_discover(${name} ${label}/${stem} ${label} "${filter}" "$<IN_LIST:${stem},${arg_ALONE}>")
    endforeach()
endfunction()
