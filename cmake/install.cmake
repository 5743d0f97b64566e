# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: headers, libtsocket, both programs, and the files by which pkg-config and
# find_package(tsocket) find them. All of it can be moved afterwards.
include(CMakePackageConfigHelpers)

install(TARGETS tsocket EXPORT tsocketTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tsocketd tsocketctl DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/tsocket DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tsocket)
install(EXPORT tsocketTargets NAMESPACE tsocket:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tsocketConfig.cmake.in tsocketConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tsocketConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tsocketConfig.cmake ${PROJECT_BINARY_DIR}/tsocketConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH TSOCKET_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TSOCKET_PC_PREFIX "${TSOCKET_PC_PREFIX}")
configure_file(cmake/tsocket.pc.in tsocket.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tsocket.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
