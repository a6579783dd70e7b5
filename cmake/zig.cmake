# A toolchain file for libraries that run on older systems: clang, libc++ and the stubs of an older glibc, all from zig
# (the package ziglang). Give it an absolute path; try_compile reads it too.
#
#   cmake -S . -B build/portable -DCMAKE_TOOLCHAIN_FILE=cmake/zig.cmake -DHVD_ZIG=/path/to/zig -DHVD_DEPENDENCIES=/prefix
#
# HVD_ZIG           the program zig
# HVD_ZIG_TARGET    CPU and oldest glibc, by default x86_64-linux-gnu.2.28
# HVD_DEPENDENCIES  the only prefix in which libraries and headers are found. The system's own include folder would mix
#                   the headers of two glibcs.
#
# zig keeps libc++ and the stubs that it has built for a target in its cache folder, ~/.cache/zig.
set(HVD_ZIG_TARGET x86_64-linux-gnu.2.28 CACHE STRING "CPU and oldest glibc that zig compiles for")
foreach(needed HVD_ZIG HVD_DEPENDENCIES)
  if(NOT ${needed})
    message(FATAL_ERROR "cmake/zig.cmake needs -D${needed}=PATH")
  endif()
endforeach()

# CMake calls these as programs, without arguments of ours.
set(HVD_ZIG_TOOLS ${CMAKE_BINARY_DIR}/zig CACHE PATH "Scripts that call zig")
foreach(tool cc c++ ar ranlib)
  set(options "")
  if(tool MATCHES "^c")
    # Not the CPU of this machine: Highway chooses its instructions at run time.
    set(options " -target ${HVD_ZIG_TARGET} -mcpu=baseline")
  endif()
  if(NOT EXISTS ${HVD_ZIG_TOOLS}/${tool})
    file(WRITE ${HVD_ZIG_TOOLS}/${tool} "#!/bin/sh\nexec \"${HVD_ZIG}\" ${tool}${options} \"$@\"\n")
    file(CHMOD ${HVD_ZIG_TOOLS}/${tool} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
endforeach()

# Our libraries unwind stacks by the libgcc_s of the system, as glibc does when it ends a thread. zig would link its own
# libunwind, which crashes on what glibc's unwinder passes it: at the end of Python, before 3.14. Only the linker needs
# this copy, whose functions are empty.
set(HVD_UNWINDER ${HVD_ZIG_TOOLS}/libgcc_s.so.1)
set(HVD_UNWINDER_MAP ${CMAKE_CURRENT_LIST_DIR}/libgcc_s.map)
if(NOT EXISTS ${HVD_UNWINDER})
  file(STRINGS ${HVD_UNWINDER_MAP} functions REGEX "_Unwind_")
  list(TRANSFORM functions REPLACE " *(.+);" "void \\1(void) {}")
  list(JOIN functions "\n" functions)
  file(WRITE ${HVD_ZIG_TOOLS}/libgcc_s.c "${functions}\n")
  execute_process(
    COMMAND ${HVD_ZIG_TOOLS}/cc -O2 -shared -nostdlib -Wl,-soname,libgcc_s.so.1 -Wl,--version-script=${HVD_UNWINDER_MAP}
            ${HVD_ZIG_TOOLS}/libgcc_s.c -o ${HVD_UNWINDER} COMMAND_ERROR_IS_FATAL ANY)
endif()
# libc++abi names the type of an exception without a handler in its last words, and has 170 KB of code to decode the
# name. In each of our libraries and in horovodrun, this object takes its place: the name stays encoded. Modules of
# Python get the decoder, which nanobind uses for the names of types.
set(HVD_DEMANGLER ${HVD_ZIG_TOOLS}/demangle.o)
if(NOT EXISTS ${HVD_DEMANGLER})
  file(WRITE ${HVD_ZIG_TOOLS}/demangle.c
    "char* __cxa_demangle(const char* name, char* buffer, __SIZE_TYPE__* size, int* status) {\n"
    "  (void)name, (void)buffer, (void)size;\n"
    "  if (status) *status = -1;  // as without memory\n"
    "  return (char*)0;\n"
    "}\n")
  execute_process(
    COMMAND ${HVD_ZIG_TOOLS}/cc -O2 -fPIC -fvisibility=hidden -c ${HVD_ZIG_TOOLS}/demangle.c -o ${HVD_DEMANGLER}
            COMMAND_ERROR_IS_FATAL ANY)
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HVD_ZIG HVD_ZIG_TARGET HVD_ZIG_TOOLS HVD_DEPENDENCIES)

set(CMAKE_SYSTEM_NAME Linux)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "${HVD_ZIG_TARGET}")
set(CMAKE_C_COMPILER ${HVD_ZIG_TOOLS}/cc)
set(CMAKE_CXX_COMPILER ${HVD_ZIG_TOOLS}/c++)
set(CMAKE_AR ${HVD_ZIG_TOOLS}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${HVD_ZIG_TOOLS}/ranlib CACHE FILEPATH "")

set(CMAKE_FIND_ROOT_PATH ${HVD_DEPENDENCIES})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)
# -O2, which Release overrides by -O3, is for the checks of CMake. Without it, zig would build libc++ twice. The names of
# folders of this machine are not in the results, so that all machines build the same bytes.
set(CMAKE_C_FLAGS_INIT "-O2 -isystem ${HVD_DEPENDENCIES}/include")
foreach(folder ${CMAKE_SOURCE_DIR} ${HVD_DEPENDENCIES})
  string(APPEND CMAKE_C_FLAGS_INIT " -ffile-prefix-map=${folder}/=")
endforeach()
# nanobind uses stderr without its header, which libc++ does not include for the limited API.
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT} -include stdio.h")
# -s: the system's strip does not know other CPUs.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s ${HVD_DEMANGLER}")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s -Wl,--as-needed ${HVD_UNWINDER}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_MODULE_LINKER_FLAGS_INIT} ${HVD_DEMANGLER}")
