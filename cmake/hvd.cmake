# What every folder of the tree uses: warnings, sanitizers, and the two functions by which a folder
# adds its sources to the one core library and its tests to one executable a folder.

set(HVD_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND HVD_WARNINGS -Wno-restrict)  # untrue of std::string's operator+ (GCC bug 105651)
endif()

if(HVD_SANITIZE)
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HVD_SANITIZE})
endif()

# hvd_sources(a.cc b.cc): belongs to the core library.
function(hvd_sources)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(hvd_core PRIVATE ${ARGN})
endfunction()

# hvd_tests(folder a_test.cc ... [LIBRARIES target ...]): one executable `test_<folder>` and one ctest entry.
function(hvd_tests folder)
  if(NOT HVD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  add_executable(test_${folder} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(test_${folder} PRIVATE ${HVD_WARNINGS})
  target_link_libraries(test_${folder} PRIVATE hvd_core ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  add_test(NAME ${folder} COMMAND test_${folder})
  set_tests_properties(${folder} PROPERTIES TIMEOUT 600)
endfunction()
