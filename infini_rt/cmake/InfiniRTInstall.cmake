# Install rules, component InfiniRT: headers, the library and the CMake package.

include(CMakePackageConfigHelpers)

set(INFINI_RT_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/InfiniRT" CACHE PATH
    "Where InfiniRTConfig.cmake is installed")

install(DIRECTORY include/ "${INFINI_RT_GENERATED_DIR}/include/" TYPE INCLUDE COMPONENT InfiniRT)
install(TARGETS infinirt EXPORT InfiniRTTargets
        LIBRARY COMPONENT InfiniRT NAMELINK_COMPONENT InfiniRT)
install(EXPORT InfiniRTTargets NAMESPACE InfiniRT:: DESTINATION "${INFINI_RT_INSTALL_CMAKEDIR}"
        COMPONENT InfiniRT)

list(JOIN INFINI_RT_ACCELERATORS " " _accelerator_items)
configure_package_config_file(cmake/InfiniRTConfig.cmake.in
    "${CMAKE_CURRENT_BINARY_DIR}/InfiniRTConfig.cmake"
    INSTALL_DESTINATION "${INFINI_RT_INSTALL_CMAKEDIR}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/InfiniRTConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/InfiniRTConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/InfiniRTConfigVersion.cmake"
        DESTINATION "${INFINI_RT_INSTALL_CMAKEDIR}" COMPONENT InfiniRT)
