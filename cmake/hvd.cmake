# What every folder of the tree uses: warnings, sanitizers, the two functions by which a folder adds its
# sources to the one core library and its tests to one executable a folder, and hvd_alone for unity builds.

set(HVD_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND HVD_WARNINGS -Wno-restrict)  # untrue of std::string's operator+ (GCC bug 105651)
endif()

if(HVD_SANITIZE)
  list(APPEND HVD_WARNINGS -Wno-maybe-uninitialized)  # often untrue of code with checks in it; release has it
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HVD_SANITIZE})
endif()

# Tests compare bits with those of the kernels, which never fuse a multiplication with an addition.
set(HVD_TEST_OPTIONS "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # compilers fuse them if all CPUs of the kind can
  set(HVD_TEST_OPTIONS -ffp-contract=off)
endif()

# __FILE__ is the path from the root, the same in all clones: ccache shares objects between them.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

# hvd_unity_by_folder(target a.cc b.cc): a unity build compiles 8 of these sources at a time, all of one folder, so that
# a new source does not meet those of other folders.
function(hvd_unity_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  set(folders "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    set(earlier ${folders})
    list(FILTER earlier INCLUDE REGEX "^${folder}$")
    list(LENGTH earlier number)
    math(EXPR batch "${number} / 8")
    list(APPEND folders ${folder})
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${batch})
  endforeach()
endfunction()

# hvd_sources(a.cc b.cc): belongs to the core library.
function(hvd_sources)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(hvd_core PRIVATE ${ARGN})
  hvd_unity_by_folder(hvd_core ${ARGN})
endfunction()

# hvd_alone(target a.cc b.cc): sources that a unity build compiles alone, because they use the same name in an anonymous
# namespace, or a using-directive, as other sources of the target.
function(hvd_alone target)
  if(TARGET ${target})
    list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# hvd_tests(folder a_test.cc ... [LIBRARIES target ...] [ENVIRONMENT name=value ...]): one executable `test_<folder>` and
# one ctest entry. CMAKE_CROSSCOMPILING_EMULATOR runs those of another CPU.
function(hvd_tests folder)
  if(NOT HVD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBRARIES;ENVIRONMENT" ${ARGN})
  add_executable(test_${folder} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(test_${folder} PRIVATE ${HVD_WARNINGS} ${HVD_TEST_OPTIONS})
  target_link_libraries(test_${folder} PRIVATE hvd_core ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  set(with_environment "")
  if(ARG_ENVIRONMENT)
    set(with_environment ${CMAKE_COMMAND} -E env ${ARG_ENVIRONMENT})
  endif()
  add_test(NAME ${folder} COMMAND ${with_environment} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_${folder}>)
  set_tests_properties(${folder} PROPERTIES TIMEOUT 600)
endfunction()
