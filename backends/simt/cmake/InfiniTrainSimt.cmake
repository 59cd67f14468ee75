# The shared kernels and the emulator that runs them on the CPU, for providers and tests.

include_guard(GLOBAL)

# infinitrain_simt_kernels(<out-var> [ATTENTION_BY_PRODUCTS] [EXCLUDE <file-stem>...])
#
# The sources of the shared kernels, which a provider compiles with its device compiler. It leaves out
# those that it replaces by kernels of its own. ATTENTION_BY_PRODUCTS: attention in half types calls the
# op Gemm, for chips whose matrix units only a library reaches.
function(infinitrain_simt_kernels out_var)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "ATTENTION_BY_PRODUCTS" "" "EXCLUDE")
  cmake_path(GET CMAKE_CURRENT_FUNCTION_LIST_DIR PARENT_PATH simt)
  file(GLOB sources CONFIGURE_DEPENDS "${simt}/kernels/*/*.cc")
  if(ARG_ATTENTION_BY_PRODUCTS)
    list(APPEND ARG_EXCLUDE attention_op)
  else()
    list(APPEND ARG_EXCLUDE attention_products attention_products_backward attention_products_memory)
  endif()
  set(excluded "${ARG_EXCLUDE}")
  set(stems "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM stem)
    if(stem IN_LIST stems)
      message(FATAL_ERROR "infinitrain_simt_kernels: two files of shared kernels are named ${stem}")
    endif()
    list(APPEND stems "${stem}")
    if(stem IN_LIST ARG_EXCLUDE)
      list(REMOVE_ITEM sources "${source}")
      list(REMOVE_ITEM excluded "${stem}")
    endif()
  endforeach()
  if(excluded)
    message(FATAL_ERROR "infinitrain_simt_kernels: no shared kernels in files named: ${excluded}")
  endif()
  set(${out_var} "${sources}" PARENT_SCOPE)
endfunction()

# infinitrain_add_simt_emulator()
#
# Makes the target infini_train_simt_emulator, once: what links it runs kernels on the CPU. Where they
# are compiled, `#include "simt_platform.h"` is backends/simt/emulator/platform.h. Needs the target
# InfiniRT::infinirt with the CPU backend. What links it links the framework, or the objects of its rooms
# core and ops, too.
function(infinitrain_add_simt_emulator)
  if(TARGET infini_train_simt_emulator)
    return()
  endif()
  find_package(Boost REQUIRED COMPONENTS context)
  find_package(fmt CONFIG REQUIRED)
  find_package(Threads REQUIRED)
  cmake_path(GET CMAKE_CURRENT_FUNCTION_LIST_DIR PARENT_PATH simt)
  include("${simt}/emulator/sources.cmake")
  add_library(infini_train_simt_emulator STATIC ${simt_emulator_sources} "${simt}/emulator/launch.cc")
  set_target_properties(infini_train_simt_emulator PROPERTIES
    POSITION_INDEPENDENT_CODE ON OPTIMIZE_DEPENDENCIES ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(infini_train_simt_emulator PUBLIC cxx_std_20)
  target_include_directories(infini_train_simt_emulator
    PUBLIC $<TARGET_PROPERTY:InfiniTrain::InfiniTrain,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(infini_train_simt_emulator
    PUBLIC InfiniTrain::BackendHeaders
    PRIVATE InfiniRT::infinirt Boost::context fmt::fmt Threads::Threads)
  if(TARGET infini_train_compile_options)
    target_link_libraries(infini_train_simt_emulator PRIVATE infini_train_compile_options)
  endif()
endfunction()
