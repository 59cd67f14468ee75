# Collectives: NCCL, looked for in the CUDA toolkit, on CMAKE_PREFIX_PATH and below NCCL_PATH (a variable
# of CMake or the environment), such as the folder that pip installs it in.
include("${CMAKE_CURRENT_LIST_DIR}/optional_library.cmake")
set(INFINITRAIN_CUDA_NCCL AUTO CACHE STRING "Collectives by NCCL: ON, OFF, or AUTO for where it is found")
set_property(CACHE INFINITRAIN_CUDA_NCCL PROPERTY STRINGS AUTO ON OFF)

# infinitrain_find_nccl(<out-var>)
#
# Makes the target infini_train_nccl and sets the variable to ON; or to OFF.
function(infinitrain_find_nccl out_var)
  set(roots "${NCCL_PATH}" ENV NCCL_PATH)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${roots} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${roots} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
  set(lacks "")
  if(NOT NCCL_INCLUDE_DIR)
    list(APPEND lacks "nccl.h")
  endif()
  if(NOT NCCL_LIBRARY)
    list(APPEND lacks "libnccl.so")
  endif()
  infinitrain_optional_library(use INFINITRAIN_CUDA_NCCL SUBJECT "Collectives of cuda" WITH "NCCL (${NCCL_LIBRARY})"
    WITHOUT "between the threads of a process" LACKS ${lacks}
    PLACES "for NCCL in the CUDA toolkit, on CMAKE_PREFIX_PATH and below NCCL_PATH")
  set(${out_var} ${use} PARENT_SCOPE)
  if(use AND NOT TARGET infini_train_nccl)
    add_library(infini_train_nccl INTERFACE IMPORTED GLOBAL)
    target_include_directories(infini_train_nccl INTERFACE "${NCCL_INCLUDE_DIR}")
    target_link_libraries(infini_train_nccl INTERFACE "${NCCL_LIBRARY}")
  endif()
endfunction()
