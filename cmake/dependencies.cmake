# Finds what horovod is built from. One error names all that is missing, with the packages that have it.

foreach(oldest GNU=12 Clang=16)
  string(REPLACE "=" ";" oldest ${oldest})
  list(GET oldest 0 compiler)
  list(GET oldest 1 version)
  if(CMAKE_CXX_COMPILER_ID STREQUAL compiler AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS version)
    message(FATAL_ERROR "horovod cannot be compiled by ${CMAKE_CXX_COMPILER}, which is ${compiler} "
                        "${CMAKE_CXX_COMPILER_VERSION}: install GCC 12 or Clang 16 and set CXX (g++-12 in Ubuntu 22.04, "
                        "gcc-toolset-12 in RHEL 8 and 9), ${HVD_WHEEL_INSTEAD}.")
  endif()
endforeach()

set(HVD_MISSING "")
set(HVD_DEBIAN "")
set(HVD_FEDORA "")

# hvd_needs(name DEBIAN packages FEDORA packages FOUND variables): `name` is missing unless all variables are true.
macro(hvd_needs name)
  cmake_parse_arguments(ARG "" "" "DEBIAN;FEDORA;FOUND" ${ARGN})
  foreach(variable IN LISTS ARG_FOUND)
    if(NOT ${variable})
      list(APPEND HVD_MISSING ${name})
      list(APPEND HVD_DEBIAN ${ARG_DEBIAN})
      list(APPEND HVD_FEDORA ${ARG_FEDORA})
      break()
    endif()
  endforeach()
endmacro()

find_package(Threads REQUIRED)
find_package(fmt QUIET)
hvd_needs(fmt FOUND fmt_FOUND DEBIAN libfmt-dev FEDORA fmt-devel)
find_package(spdlog QUIET)
hvd_needs(spdlog FOUND spdlog_FOUND DEBIAN libspdlog-dev FEDORA spdlog-devel)
find_package(HWY QUIET)
hvd_needs(Highway FOUND HWY_FOUND DEBIAN libhwy-dev FEDORA highway-devel)
find_path(HVD_JSON_INCLUDE nlohmann/json.hpp)
hvd_needs(nlohmann-json FOUND HVD_JSON_INCLUDE DEBIAN nlohmann-json3-dev FEDORA json-devel)
# libsodium as an archive where there is one, so that nothing has to be installed to use the library. Debian's archive is
# compiled with -fPIE. It can be linked to libhorovod because the version script makes its symbols local.
find_path(HVD_SODIUM_INCLUDE sodium.h)
find_library(HVD_SODIUM NAMES libsodium.a sodium)
hvd_needs(libsodium FOUND HVD_SODIUM_INCLUDE HVD_SODIUM DEBIAN libsodium-dev FEDORA libsodium-devel libsodium-static)
if(HVD_LAUNCHER)
  find_path(HVD_YAML_CPP_INCLUDE yaml-cpp/yaml.h)
  find_library(HVD_YAML_CPP NAMES libyaml-cpp.a)
  hvd_needs(yaml-cpp FOUND HVD_YAML_CPP_INCLUDE HVD_YAML_CPP DEBIAN libyaml-cpp-dev
            FEDORA yaml-cpp-devel yaml-cpp-static)
endif()
if(HVD_PYTHON)
  # A wheel for several versions of Python (wheel.py-api of scikit-build-core) has a module of the stable ABI.
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
  hvd_needs("Python's headers" FOUND Python_FOUND DEBIAN python3-dev FEDORA python3-devel)
endif()
if(HVD_TESTS)
  find_package(GTest QUIET)
  hvd_needs(GoogleTest FOUND GTest_FOUND DEBIAN libgmock-dev libgtest-dev FEDORA gmock-devel gtest-devel)
endif()

if(HVD_MISSING)
  list(JOIN HVD_MISSING ", " HVD_MISSING)
  list(JOIN HVD_DEBIAN " " HVD_DEBIAN)
  list(JOIN HVD_FEDORA " " HVD_FEDORA)
  message(FATAL_ERROR "horovod cannot be compiled without ${HVD_MISSING}: install ${HVD_DEBIAN} (Debian, Ubuntu) or "
                      "${HVD_FEDORA} (Fedora, RHEL with EPEL), ${HVD_WHEEL_INSTEAD}.")
endif()

add_library(hvd::sodium UNKNOWN IMPORTED)
set_target_properties(hvd::sodium PROPERTIES IMPORTED_LOCATION "${HVD_SODIUM}"
                                             INTERFACE_INCLUDE_DIRECTORIES "${HVD_SODIUM_INCLUDE}")
