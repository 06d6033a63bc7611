# SPDX-License-Identifier: MIT
# Run by cmake -P: writes OUTPUT (vmlinux.h) from the kernel type information in BTF.

if(NOT EXISTS ${BTF})
    message(FATAL_ERROR
        "${BTF} does not exist: the running kernel has no BTF (CONFIG_DEBUG_INFO_BTF).\n"
        "Take it from another kernel: cmake -DPODLANE_VMLINUX_BTF=<vmlinux or raw BTF file of any kernel from 5.10>")
endif()
execute_process(COMMAND ${BPFTOOL} btf dump file ${BTF} format c
    OUTPUT_FILE ${OUTPUT}.new RESULT_VARIABLE failed ERROR_VARIABLE text)
if(failed)
    message(FATAL_ERROR "${BPFTOOL} cannot read ${BTF}: ${text}")
endif()
file(RENAME ${OUTPUT}.new ${OUTPUT})
