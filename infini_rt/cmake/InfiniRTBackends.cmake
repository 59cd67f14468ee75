# Backend options, the rule that a build takes at most one accelerator, and the vendors' SDKs.

set(INFINI_RT_ACCELERATORS nvidia metax iluvatar moore cambricon ascend)

option(WITH_CPU "Build the CPU backend" OFF)
foreach(backend IN LISTS INFINI_RT_ACCELERATORS)
  string(TOUPPER "${backend}" upper)
  option(WITH_${upper} "Build the ${backend} backend" OFF)
endforeach()

set(INFINI_RT_ENABLED_BACKENDS "")
foreach(backend IN ITEMS cpu ${INFINI_RT_ACCELERATORS})
  string(TOUPPER "${backend}" upper)
  if(WITH_${upper})
    list(APPEND INFINI_RT_ENABLED_BACKENDS ${backend})
  endif()
endforeach()
if(NOT INFINI_RT_ENABLED_BACKENDS)
  set(INFINI_RT_ENABLED_BACKENDS cpu)
endif()

set(_accelerators ${INFINI_RT_ENABLED_BACKENDS})
list(REMOVE_ITEM _accelerators cpu)
list(LENGTH _accelerators _count)
if(_count GREATER 1)
  list(JOIN _accelerators " and " _names)
  message(FATAL_ERROR "InfiniRT: one build takes at most one accelerator, got ${_names}")
endif()

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

# Writes the public headers and the dispatch for some backends into a folder, at configure time.
function(infini_rt_generate output_dir)
  set(script "${PROJECT_SOURCE_DIR}/scripts/generate_public_headers.py")
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/native/*/runtime_.h"
       "${PROJECT_SOURCE_DIR}/src/native/*/*.inc"
       "${PROJECT_SOURCE_DIR}/scripts/header_*.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}" ${headers})
  execute_process(
      COMMAND "${Python3_EXECUTABLE}" "${script}" --backends ${ARGN} --output-dir "${output_dir}"
      RESULT_VARIABLE result
      ERROR_VARIABLE message)
  if(result)
    message(FATAL_ERROR "InfiniRT: ${message}")
  endif()
endfunction()

# The first of the given environment variables or paths that is set and exists.
function(infini_rt_sdk_root result)
  foreach(candidate IN LISTS ARGN)
    if(IS_DIRECTORY "${candidate}")
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

# Links one vendor's SDK: HEADER and LIBRARIES are looked for under ROOT, and nowhere else.
function(infini_rt_link_sdk target title root header)
  if(NOT root)
    message(FATAL_ERROR "InfiniRT: the ${title} SDK was not found; set ${ARGV4}")
  endif()
  find_path(INFINI_RT_SDK_INCLUDE "${header}" PATHS "${root}/include" NO_DEFAULT_PATH REQUIRED)
  target_include_directories(${target} SYSTEM PRIVATE "${INFINI_RT_SDK_INCLUDE}")
  foreach(library IN LISTS ARGN)
    if(library STREQUAL ARGV4)
      continue()
    endif()
    find_library(INFINI_RT_SDK_${library} ${library} PATHS "${root}/lib64" "${root}/lib"
                 NO_DEFAULT_PATH REQUIRED)
    target_link_libraries(${target} PRIVATE "${INFINI_RT_SDK_${library}}")
  endforeach()
endfunction()

# Links what the enabled accelerator needs. SDK headers stay private: consumers need none. Libraries
# are linked by path, so that the installed package refers to no target of the SDK.
function(infini_rt_link_backends target)
  foreach(backend IN LISTS INFINI_RT_ENABLED_BACKENDS)
    if(backend STREQUAL "nvidia")
      find_package(CUDAToolkit REQUIRED)
      target_link_libraries(${target} PRIVATE "${CUDA_cudart_LIBRARY}")
      target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    elseif(backend STREQUAL "metax")
      infini_rt_sdk_root(root "${MACA_PATH}" "$ENV{MACA_PATH}" /opt/maca)
      infini_rt_link_sdk(${target} MetaX "${root}" mcr/mc_runtime.h MACA_PATH mcruntime)
    elseif(backend STREQUAL "iluvatar")
      infini_rt_sdk_root(root "$ENV{COREX_HOME}" /usr/local/corex)
      infini_rt_link_sdk(${target} Iluvatar "${root}" cuda_runtime.h COREX_HOME cudart)
    elseif(backend STREQUAL "moore")
      infini_rt_sdk_root(root "$ENV{MUSA_HOME}" "$ENV{MUSA_ROOT}" "$ENV{MUSA_PATH}" /usr/local/musa)
      infini_rt_link_sdk(${target} Moore "${root}" musa_runtime.h MUSA_HOME musa musart)
    elseif(backend STREQUAL "cambricon")
      infini_rt_sdk_root(root "$ENV{NEUWARE_HOME}" /usr/local/neuware)
      infini_rt_link_sdk(${target} Cambricon "${root}" cnrt.h NEUWARE_HOME cnrt)
    elseif(backend STREQUAL "ascend")
      infini_rt_sdk_root(root "$ENV{ASCEND_HOME_PATH}" /usr/local/Ascend/ascend-toolkit/latest)
      infini_rt_link_sdk(${target} Ascend "${root}" acl/acl.h ASCEND_HOME_PATH ascendcl)
      target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
    endif()
  endforeach()
endfunction()
