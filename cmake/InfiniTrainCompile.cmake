# Compiler settings shared by every target of this repository.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(infinitrain_top_level AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

# All programs of a build are in one place.
if(infinitrain_top_level)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endif()

# An installed program finds the library of its own installation, wherever that was moved to.
file(RELATIVE_PATH infinitrain_bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set(CMAKE_INSTALL_RPATH "$ORIGIN/${infinitrain_bin_to_lib}")

add_library(infini_train_compile_options INTERFACE)
target_compile_options(infini_train_compile_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
if(INFINITRAIN_WARNINGS_AS_ERRORS)
  target_compile_options(infini_train_compile_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()
# What GCC's optimiser says about inlined library code comes and goes with its decisions.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(infini_train_compile_options INTERFACE
    -Wno-error=array-bounds -Wno-error=restrict -Wno-error=stringop-overflow)
endif()
if(INFINITRAIN_SANITIZE)
  target_compile_options(infini_train_compile_options INTERFACE
    -fsanitize=${INFINITRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(infini_train_compile_options INTERFACE -fsanitize=${INFINITRAIN_SANITIZE})
endif()
