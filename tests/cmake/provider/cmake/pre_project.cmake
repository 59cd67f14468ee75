if(PROJECT_NAME STREQUAL "InfiniTrainBackends")
  message(FATAL_ERROR "pre_project.cmake runs after the first project()")
endif()
set(outside_provider_compiler "before project()")
