# cmake -DSOURCE_DIR= -DBINARY_DIR= [-DARGS=] [-DERROR=] [-DOUTPUT=] [-DSOURCES_FROM=] [-DBUILD=] [-DRUN=] -P configure.cmake
#
# Configures SOURCE_DIR in a fresh BINARY_DIR with ARGS. It must fail with one line that matches
# ERROR, or, where that is empty, succeed and print OUTPUT. SOURCES_FROM is the folder that all
# framework sources must then be compiled from; BUILD is a target to build, RUN a
# program in BINARY_DIR to run.

file(REMOVE_RECURSE "${BINARY_DIR}")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${BINARY_DIR}" ${ARGS}
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")

if(ERROR)
  if(result EQUAL 0)
    message(FATAL_ERROR "expected configuration to fail with: ${ERROR}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${output}")
  list(FILTER lines INCLUDE REGEX "${ERROR}")
  if(NOT lines)
    message(FATAL_ERROR "expected one line with: ${ERROR}")
  endif()
  return()
endif()
if(NOT result EQUAL 0)
  message(FATAL_ERROR "expected configuration to succeed")
endif()
if(NOT output MATCHES "${OUTPUT}")
  message(FATAL_ERROR "expected the output: ${OUTPUT}")
endif()

if(SOURCES_FROM)
  file(STRINGS "${BINARY_DIR}/compile_commands.json" files REGEX "\"file\": ")
  foreach(checkout IN ITEMS SOURCE_DIR SOURCES_FROM)
    set(${checkout}_files "${files}")
    list(FILTER ${checkout}_files INCLUDE REGEX "\"${${checkout}}/infini_train/")
  endforeach()
  if(SOURCE_DIR_files OR NOT SOURCES_FROM_files)
    message(FATAL_ERROR "expected all framework sources below ${SOURCES_FROM}, found ${SOURCE_DIR_files}")
  endif()
endif()

if(BUILD)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BINARY_DIR}" --target ${BUILD} COMMAND_ERROR_IS_FATAL ANY)
endif()
if(RUN)
  execute_process(COMMAND "${BINARY_DIR}/${RUN}" COMMAND_ERROR_IS_FATAL ANY)
endif()
