# For tests/aarch64/run: compiles for aarch64 Linux against the libraries of build/aarch64-root, and runs programs there under QEMU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
cmake_path(SET CMAKE_SYSROOT NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-root")
# Included again after project(): with ccache CMake takes the path of this folder for another one, and would name it to the
# compiler before that of the C++ library, which wraps its headers.
set(CMAKE_PROJECT_INCLUDE ${CMAKE_CURRENT_LIST_FILE})
list(APPEND CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_SYSROOT}/usr/include)
if(NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)  # Clang's
find_program(HALFSTEP_QEMU qemu-aarch64-static REQUIRED NO_CMAKE_FIND_ROOT_PATH)  # its path, for tests that change PATH
set(CMAKE_CROSSCOMPILING_EMULATOR ${HALFSTEP_QEMU} -cpu max -L ${CMAKE_SYSROOT})
foreach(what LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${what} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
