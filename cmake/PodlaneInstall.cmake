# SPDX-License-Identifier: MIT
# Where 'cmake --install' puts what is shipped. DESTDIR and --prefix are obeyed, but by the plugin's directory only DESTDIR.

include(GNUInstallDirs)

# Runtimes look for plugins in /opt/cni/bin; those of a distribution look where its own packages put them.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(default_cni_bindir /usr/lib/cni)
else()
    set(default_cni_bindir /opt/cni/bin)
endif()
set(PODLANE_CNI_BINDIR ${default_cni_bindir} CACHE PATH "Where 'cmake --install' puts the CNI plugin")

# podlane_install_output(PROGRAM DIRECTORY FILE ARGUMENT...): at install time, what the program prints becomes a file.
function(podlane_install_output program directory file)
    install(CODE "set(directory \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${directory}\")
        message(STATUS \"Writing: \${directory}/${file}\")
        file(MAKE_DIRECTORY \"\${directory}\")
        execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${program}> ${ARGN} COMMAND_ERROR_IS_FATAL ANY
            OUTPUT_FILE \"\${directory}/${file}\")")
endfunction()

# As in the checkout, so that the pages' links lead somewhere.
install(FILES README.md LICENSE CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY tools/grafana/ DESTINATION ${CMAKE_INSTALL_DATADIR}/podlane/grafana)
