if(PROJECT_NAME)
  message(FATAL_ERROR "pre_project.cmake runs after the first project()")
endif()
set(outside_provider_compiler "before project()")
