# Where the library, its headers and its CMake package go: below the prefix, or into the package
# `horovod` of a wheel, whose folder is then the prefix.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

if(HVD_PYTHON)
  set(HVD_PREFIX horovod/)
  set(HVD_LIBRARY_DIR horovod)  # beside _core, which loads it
  set(HVD_CMAKE_DIR horovod/lib/cmake/horovod)
else()
  set(HVD_PREFIX "")
  set(HVD_LIBRARY_DIR ${CMAKE_INSTALL_LIBDIR})
  set(HVD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/horovod)
endif()

target_include_directories(horovod INTERFACE $<INSTALL_INTERFACE:${HVD_PREFIX}include>)
install(TARGETS horovod EXPORT horovod LIBRARY DESTINATION ${HVD_LIBRARY_DIR})
get_property(HVD_MPI_PLUGINS GLOBAL PROPERTY HVD_MPI_PLUGINS)
if(HVD_MPI_PLUGINS)
  install(TARGETS ${HVD_MPI_PLUGINS} LIBRARY DESTINATION ${HVD_LIBRARY_DIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/horovod DESTINATION ${HVD_PREFIX}include)
install(EXPORT horovod NAMESPACE horovod:: FILE horovodTargets.cmake DESTINATION ${HVD_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/horovodConfigVersion.cmake
                                 COMPATIBILITY SameMajorVersion)
configure_file(cmake/horovodConfig.cmake.in ${PROJECT_BINARY_DIR}/horovodConfig.cmake COPYONLY)
install(FILES ${PROJECT_BINARY_DIR}/horovodConfig.cmake ${PROJECT_BINARY_DIR}/horovodConfigVersion.cmake
        DESTINATION ${HVD_CMAKE_DIR})
