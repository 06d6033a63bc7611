# SPDX-License-Identifier: MIT
# The toolchain file of the preset arm64: Debian's cross compiler and the arm64 packages of the libraries.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The compiler's own libc is that of its day; Debian's updates reach the package libc6-dev:arm64.
add_link_options(-L/usr/lib/aarch64-linux-gnu)
# podlanectl writes its own page and completions, and tests list their cases.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
