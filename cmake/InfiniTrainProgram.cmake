# infini_train_program(<name> SOURCES <file>... [LIBRARIES <target>...])
#
# A program on top of the framework and of the build's provider, built into bin/ and installed.
function(infini_train_program name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${INFINITRAIN_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE infini_train_compile_options InfiniTrain::InfiniTrain
                                        ${infinitrain_provider_target} ${ARG_LIBRARIES})
  if(INFINITRAIN_INSTALL)
    install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endfunction()
