# Install rules of the framework, component InfiniTrain: library, public headers and the CMake
# package. Included by infini_train/CMakeLists.txt; programs install themselves where they are declared.

include(CMakePackageConfigHelpers)

set(infinitrain_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/InfiniTrain")

# Headers in a room's own folder are public; those in the folders below it are the room's own affair
# and may include third-party headers. core/device/ is a room in all but name.
file(GLOB public_headers RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
     "${CMAKE_CURRENT_SOURCE_DIR}/*/*.h" "${CMAKE_CURRENT_SOURCE_DIR}/core/device/*.h")
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/infini_train/${folder}" COMPONENT InfiniTrain)
endforeach()

install(TARGETS ${infini_train_installed_targets} EXPORT InfiniTrainTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT InfiniTrain
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT InfiniTrain)
install(EXPORT InfiniTrainTargets NAMESPACE InfiniTrain:: DESTINATION "${infinitrain_package_dir}"
        COMPONENT InfiniTrain)

infinitrain_read_extension_api("${INFINITRAIN_SOURCE_DIR}" infinitrain_extension_api_version)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/InfiniTrainConfig.cmake.in" "${PROJECT_BINARY_DIR}/InfiniTrainConfig.cmake"
  INSTALL_DESTINATION "${infinitrain_package_dir}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/InfiniTrainConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/InfiniTrainConfig.cmake" "${PROJECT_BINARY_DIR}/InfiniTrainConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/InfiniTrainBackend.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/InfiniTrainExtensionApi.cmake"
        DESTINATION "${infinitrain_package_dir}" COMPONENT InfiniTrain)
if(infini_train_static)
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/InfiniTrainDependencies.cmake"
          DESTINATION "${infinitrain_package_dir}" COMPONENT InfiniTrain)
  install(DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/modules"
          DESTINATION "${infinitrain_package_dir}" COMPONENT InfiniTrain)
endif()
