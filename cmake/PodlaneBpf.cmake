# SPDX-License-Identifier: MIT
# podlane_bpf(): X.bpf.c -> X.bpf.o (BTF, no DWARF) -> X.skel.h, rebuilt whenever a header it includes changes.

find_program(PODLANE_CLANG NAMES clang-14 clang)
find_program(PODLANE_LLVM_STRIP NAMES llvm-strip-14 llvm-strip)
find_program(PODLANE_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin)
foreach(pair "CLANG;clang-14" "LLVM_STRIP;llvm-14" "BPFTOOL;bpftool")
    list(GET pair 0 tool)
    list(GET pair 1 package)
    if(NOT PODLANE_${tool})
        message(FATAL_ERROR "The BPF programs need ${package}: apt-get install ${package} (or run tools/setup)")
    endif()
endforeach()

set(PODLANE_BPF_DIR ${PROJECT_BINARY_DIR}/bpf)
set(PODLANE_VMLINUX_H ${PODLANE_BPF_DIR}/include/vmlinux.h)
# Kernel functions are declared where they are called: bpftool writes their prototypes into vmlinux.h only since 7.5.
set(PODLANE_BPF_FLAGS -target bpf -g -O2 -mcpu=v3 -Wall -Wextra ${PODLANE_WARNINGS} -DBPF_NO_KFUNC_PROTOTYPES
    ${PODLANE_PREFIX_MAP} -I${PROJECT_SOURCE_DIR} -isystem ${PODLANE_BPF_DIR}/include)
# libbpf's <bpf/bpf_helpers.h> is included by name; on Debian it sits in /usr/include, which clang searches.

function(podlane_vmlinux_h)
    if(PODLANE_VMLINUX_BTF)
        set(btf ${PODLANE_VMLINUX_BTF})
    elseif(CMAKE_CROSSCOMPILING) # the running kernel is of another architecture
        set(btf ${PODLANE_BPF_DIR}/vmlinux.btf)
        set(made ${btf})
        add_custom_command(
            OUTPUT ${btf}
            COMMAND ${PROJECT_SOURCE_DIR}/tests/kernels/kernel-run --kernel 6.1 --machine arm64 --btf ${btf}
            COMMENT "Taking the type information of Debian 12's arm64 kernel"
            VERBATIM)
    else()
        set(btf /sys/kernel/btf/vmlinux)
    endif()
    add_custom_command(
        OUTPUT ${PODLANE_VMLINUX_H}
        COMMAND ${CMAKE_COMMAND} -DBPFTOOL=${PODLANE_BPFTOOL} -DBTF=${btf}
                -DOUTPUT=${PODLANE_VMLINUX_H} -P ${PROJECT_SOURCE_DIR}/cmake/make-vmlinux-h.cmake
        DEPENDS ${PROJECT_SOURCE_DIR}/cmake/make-vmlinux-h.cmake ${made}
        COMMENT "Making vmlinux.h from ${btf}"
        VERBATIM)
    add_custom_target(podlane_vmlinux DEPENDS ${PODLANE_VMLINUX_H})
endfunction()

# podlane_bpf(LIST_VARIABLE FILE): the rules for one object; appends its skeleton's path to the variable. Its target is
# ${PODLANE_BPF_PREFIX}bpf_NAME.
function(podlane_bpf list_variable file)
    get_filename_component(stem ${file} NAME)
    string(REGEX REPLACE "\\.bpf\\.c$" "" stem ${stem})
    set(object ${PODLANE_BPF_DIR}/${stem}.bpf.o)
    set(skeleton ${PODLANE_BPF_DIR}/${stem}.skel.h)
    add_custom_command(
        OUTPUT ${object}
        COMMAND ${PODLANE_CLANG} ${PODLANE_BPF_FLAGS} -MD -MF ${object}.d -MT ${object} -c ${file} -o ${object}
        COMMAND ${PODLANE_LLVM_STRIP} -g ${object}
        DEPENDS ${file} ${PODLANE_VMLINUX_H}
        DEPFILE ${object}.d
        COMMENT "Building BPF object ${stem}.bpf.o"
        VERBATIM)
    add_custom_command(
        OUTPUT ${skeleton}
        COMMAND ${CMAKE_COMMAND} -DBPFTOOL=${PODLANE_BPFTOOL} -DOBJECT=${object} -DNAME=${stem}_bpf
                -DOUTPUT=${skeleton} -P ${PROJECT_SOURCE_DIR}/cmake/make-skeleton.cmake
        DEPENDS ${object} ${PROJECT_SOURCE_DIR}/cmake/make-skeleton.cmake
        COMMENT "Making skeleton ${stem}.skel.h"
        VERBATIM)
    add_custom_target(${PODLANE_BPF_PREFIX}bpf_${stem} DEPENDS ${skeleton})
    set(${list_variable} ${${list_variable}} ${skeleton} PARENT_SCOPE)
endfunction()
