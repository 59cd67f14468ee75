# Build options and their checks. Included before the first project(), so that a provider can choose
# the compiler.

include("${CMAKE_CURRENT_LIST_DIR}/InfiniTrainExtensionApi.cmake")

if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  set(infinitrain_top_level ON)
else()
  set(infinitrain_top_level OFF)
endif()

set(INFINITRAIN_BACKEND "" CACHE STRING
    "Provider under backends/ to build, or 'cpu' for no accelerator (required)")
set(INFINITRAIN_BACKEND_DIR "" CACHE PATH
    "Folder of the provider INFINITRAIN_BACKEND where it is not below backends/")
set(INFINITRAIN_SOURCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}" CACHE PATH
    "Checkout whose infini_train/ folder is built")
set(INFINITRAIN_CPU_ARCH "native" CACHE STRING
    "Instruction set of the CPU kernels, as in the compiler's -march=; empty for its default")
set(INFINITRAIN_SANITIZE "" CACHE STRING
    "Sanitizers to build with, as in the compiler's -fsanitize= (for example 'address,undefined')")
option(USE_CUDA "Same as INFINITRAIN_BACKEND=cuda" OFF)
option(BUILD_TEST "Build the test suites" OFF)
option(INFINITRAIN_BUILD_BENCHMARKS "Build the programs in benchmarks/" OFF)
option(INFINITRAIN_BUILD_FUZZERS "With BUILD_TEST: fuzz targets as libFuzzer programs (Clang)" OFF)
option(INFINITRAIN_BACKENDS_BUILD_EXAMPLES "Build the programs in examples/" ${infinitrain_top_level})
option(INFINITRAIN_INSTALL "Make install rules" ${infinitrain_top_level})
option(INFINITRAIN_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)

# Stops configuration with a message that CMake does not wrap: leading spaces keep it on one line.
function(infinitrain_fail)
  string(JOIN "" text ${ARGN})
  message(FATAL_ERROR "  ${text}")
endfunction()

# A provider of this repository is a folder below backends/ with a cmake/pre_project.cmake.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH infinitrain_repository)
file(GLOB infinitrain_provider_files RELATIVE "${infinitrain_repository}/backends"
     "${infinitrain_repository}/backends/*/cmake/pre_project.cmake")
set(infinitrain_providers cpu)
foreach(file IN LISTS infinitrain_provider_files)
  string(REGEX REPLACE "/.*" "" provider "${file}")
  list(APPEND infinitrain_providers "${provider}")
endforeach()
list(JOIN infinitrain_providers ", " infinitrain_provider_names)

# A normal variable hides the cache entry, so that USE_CUDA=OFF later brings the old choice back.
if(USE_CUDA)
  if(INFINITRAIN_BACKEND MATCHES "^(|cpu|cuda)$")
    set(INFINITRAIN_BACKEND cuda)
  else()
    infinitrain_fail("USE_CUDA=ON and INFINITRAIN_BACKEND=${INFINITRAIN_BACKEND} exclude each other: "
                     "a build has at most one accelerator. Use a build folder for each.")
  endif()
endif()

if(INFINITRAIN_BACKEND STREQUAL "")
  infinitrain_fail("INFINITRAIN_BACKEND is not set. Pass -DINFINITRAIN_BACKEND=<name> or use a preset "
                   "(cmake --list-presets). Available: ${infinitrain_provider_names}")
endif()

# The provider's folder; empty where there is no accelerator.
set(infinitrain_provider_dir "")
if(INFINITRAIN_BACKEND_DIR)
  if(NOT INFINITRAIN_BACKEND MATCHES "^[a-z0-9_]+$" OR INFINITRAIN_BACKEND MATCHES "^(cpu|privateuse1)$")
    infinitrain_fail("INFINITRAIN_BACKEND=${INFINITRAIN_BACKEND} cannot name the provider in "
                     "INFINITRAIN_BACKEND_DIR=${INFINITRAIN_BACKEND_DIR}: expected [a-z0-9_]+, "
                     "neither 'cpu' nor 'privateuse1'")
  endif()
  cmake_path(ABSOLUTE_PATH INFINITRAIN_BACKEND_DIR BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" NORMALIZE
             OUTPUT_VARIABLE infinitrain_provider_dir)
  foreach(file IN ITEMS CMakeLists.txt cmake/pre_project.cmake extension_api_version)
    if(NOT EXISTS "${infinitrain_provider_dir}/${file}")
      infinitrain_fail("INFINITRAIN_BACKEND_DIR=${INFINITRAIN_BACKEND_DIR} is no provider: it has no ${file}")
    endif()
  endforeach()
elseif(NOT INFINITRAIN_BACKEND IN_LIST infinitrain_providers)
  infinitrain_fail("INFINITRAIN_BACKEND=${INFINITRAIN_BACKEND} names no provider. "
                   "Available: ${infinitrain_provider_names}")
elseif(NOT INFINITRAIN_BACKEND STREQUAL "cpu")
  set(infinitrain_provider_dir "${infinitrain_repository}/backends/${INFINITRAIN_BACKEND}")
endif()

if(NOT EXISTS "${INFINITRAIN_SOURCE_DIR}/infini_train/CMakeLists.txt")
  infinitrain_fail("INFINITRAIN_SOURCE_DIR=${INFINITRAIN_SOURCE_DIR} is no framework checkout: "
                   "it has no infini_train/CMakeLists.txt")
endif()
infinitrain_check_extension_api("${INFINITRAIN_SOURCE_DIR}" "${infinitrain_repository}" "${infinitrain_provider_dir}")

# The languages of a provider besides C++.
set(infinitrain_languages "")
if(infinitrain_provider_dir)
  include("${infinitrain_provider_dir}/cmake/pre_project.cmake")
endif()
