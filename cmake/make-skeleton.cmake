# SPDX-License-Identifier: MIT
# Run by cmake -P: writes OUTPUT, the skeleton NAME with OBJECT embedded.

execute_process(COMMAND ${BPFTOOL} gen skeleton ${OBJECT} name ${NAME}
    OUTPUT_FILE ${OUTPUT}.new RESULT_VARIABLE failed ERROR_VARIABLE text)
if(failed)
    message(FATAL_ERROR "${BPFTOOL} gen skeleton ${OBJECT}: ${text}")
endif()
file(RENAME ${OUTPUT}.new ${OUTPUT})
