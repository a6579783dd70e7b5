# Included before project(), which reports a missing compiler at length.
set(HVD_WHEEL_INSTEAD "or install a wheel of horovod, which needs no compiler and none of the libraries")

if(DEFINED CMAKE_CXX_COMPILER OR DEFINED CMAKE_TOOLCHAIN_FILE OR DEFINED ENV{CXX})
  return()
endif()
find_program(HVD_COMPILER NAMES c++ g++ clang++ CC icpx NO_CACHE)
if(NOT HVD_COMPILER)
  message(FATAL_ERROR "horovod cannot be compiled without a C++20 compiler: install g++ (Debian, Ubuntu) or gcc-c++ "
                      "(Fedora, RHEL), ${HVD_WHEEL_INSTEAD}.")
endif()
