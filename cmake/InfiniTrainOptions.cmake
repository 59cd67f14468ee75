# Build options, checked before the first project().

set(INFINITRAIN_SOURCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}" CACHE PATH
    "Checkout whose infini_train/ folder is built")
set(INFINITRAIN_BACKEND "" CACHE STRING
    "Provider under backends/ to build, or 'cpu' for no accelerator (required)")
option(USE_CUDA "Same as INFINITRAIN_BACKEND=cuda" OFF)
option(BUILD_TEST "Build the test suites" OFF)
option(INFINITRAIN_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)
set(INFINITRAIN_CPU_ARCH "native" CACHE STRING
    "Instruction set of the CPU kernels, as in the compiler's -march=; empty for its default")
set(INFINITRAIN_SANITIZE "" CACHE STRING
    "Sanitizers to build with, as in the compiler's -fsanitize= (for example 'address,undefined')")

if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  set(infinitrain_top_level ON)
else()
  set(infinitrain_top_level OFF)
endif()
option(INFINITRAIN_BACKENDS_BUILD_EXAMPLES "Build the programs in examples/" ${infinitrain_top_level})

# A provider is a folder below backends/ with its own CMakeLists.txt.
file(GLOB infinitrain_provider_files RELATIVE "${CMAKE_CURRENT_LIST_DIR}/../backends"
     "${CMAKE_CURRENT_LIST_DIR}/../backends/*/cmake/pre_project.cmake")
set(infinitrain_providers cpu)
foreach(file IN LISTS infinitrain_provider_files)
  string(REGEX REPLACE "/.*" "" provider "${file}")
  list(APPEND infinitrain_providers "${provider}")
endforeach()
list(JOIN infinitrain_providers ", " infinitrain_provider_names)

if(USE_CUDA)
  if(INFINITRAIN_BACKEND STREQUAL "" OR INFINITRAIN_BACKEND STREQUAL "cpu")
    set(INFINITRAIN_BACKEND cuda CACHE STRING "" FORCE)
  elseif(NOT INFINITRAIN_BACKEND STREQUAL "cuda")
    message(FATAL_ERROR "USE_CUDA=ON and INFINITRAIN_BACKEND=${INFINITRAIN_BACKEND} exclude each other: "
                        "one build has at most one accelerator. Use separate build folders.")
  endif()
endif()
if(INFINITRAIN_BACKEND STREQUAL "")
  message(FATAL_ERROR "INFINITRAIN_BACKEND is not set. Pass -DINFINITRAIN_BACKEND=<name> or use a preset "
                      "(cmake --list-presets). Available: ${infinitrain_provider_names}")
endif()
if(NOT INFINITRAIN_BACKEND IN_LIST infinitrain_providers)
  message(FATAL_ERROR "INFINITRAIN_BACKEND=${INFINITRAIN_BACKEND} names no provider. "
                      "Available: ${infinitrain_provider_names}")
endif()
if(NOT EXISTS "${INFINITRAIN_SOURCE_DIR}/infini_train/CMakeLists.txt")
  message(FATAL_ERROR "INFINITRAIN_SOURCE_DIR=${INFINITRAIN_SOURCE_DIR} holds no infini_train/CMakeLists.txt")
endif()
