# cmake -DBUILD_DIR= -DPREFIX= -DCOMPONENTS= -P install.cmake
#
# Installs a built framework, or more of a build, into a fresh prefix.

file(REMOVE_RECURSE "${PREFIX}")
foreach(component IN LISTS COMPONENTS)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}" --component ${component}
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
