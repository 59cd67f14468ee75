# cmake -DBUILD_DIR= -DWORK_DIR= -DPROGRAM= -P installed_program.cmake
#
# Installs everything, moves the installation elsewhere, and runs a program there: it finds the
# library of its own installation.

file(REMOVE_RECURSE "${WORK_DIR}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/first"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${WORK_DIR}/first" "${WORK_DIR}/second")
execute_process(COMMAND "${WORK_DIR}/second/bin/${PROGRAM}" --help OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "${PROGRAM}")
  message(FATAL_ERROR "expected help on ${PROGRAM}, found: ${output}")
endif()
