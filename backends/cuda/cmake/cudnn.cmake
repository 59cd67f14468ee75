# Fused attention: cuDNN 9 and the headers of its graph interface, cudnn-frontend. They are looked for
# in the CUDA toolkit, on CMAKE_PREFIX_PATH, and below CUDNN_PATH and CUDNN_FRONTEND_PATH (variables of
# CMake or the environment), such as the folders that pip installs them in.
include("${CMAKE_CURRENT_LIST_DIR}/optional_library.cmake")
set(INFINITRAIN_CUDA_CUDNN AUTO CACHE STRING "Attention by cuDNN: ON, OFF, or AUTO for where it is found")
set_property(CACHE INFINITRAIN_CUDA_CUDNN PROPERTY STRINGS AUTO ON OFF)
set(infinitrain_min_cudnn_frontend 1.14)

# infinitrain_find_cudnn(<out-var>)
#
# Makes the target infini_train_cudnn and sets the variable to ON; or to OFF.
function(infinitrain_find_cudnn out_var)
  set(roots "${CUDNN_PATH}" ENV CUDNN_PATH)
  find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${roots} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${roots} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS "${CUDNN_FRONTEND_PATH}" ENV CUDNN_FRONTEND_PATH
            ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE_DIR)

  infinitrain_read_version(cudnn "${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
  infinitrain_read_version(frontend "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h"
    CUDNN_FRONTEND_MAJOR_VERSION CUDNN_FRONTEND_MINOR_VERSION CUDNN_FRONTEND_PATCH_VERSION)
  set(lacks "")
  if(NOT cudnn VERSION_GREATER_EQUAL 9)
    list(APPEND lacks "cudnn_version.h of cuDNN 9 (found ${CUDNN_INCLUDE_DIR} ${cudnn})")
  endif()
  if(NOT CUDNN_LIBRARY)
    list(APPEND lacks "libcudnn.so")
  endif()
  if(NOT frontend VERSION_GREATER_EQUAL infinitrain_min_cudnn_frontend)
    list(APPEND lacks "cudnn_frontend.h from ${infinitrain_min_cudnn_frontend} on (found ${CUDNN_FRONTEND_INCLUDE_DIR} ${frontend})")
  endif()
  if(NOT TARGET CUDA::nvrtc)
    list(APPEND lacks "libnvrtc.so, which cudnn-frontend calls")
  endif()
  infinitrain_optional_library(use INFINITRAIN_CUDA_CUDNN SUBJECT "Attention of cuda"
    WITH "cuDNN ${cudnn} (${CUDNN_LIBRARY}), cudnn-frontend ${frontend}" WITHOUT "the shared kernels" LACKS ${lacks}
    PLACES "for cuDNN and cudnn-frontend in the CUDA toolkit, on CMAKE_PREFIX_PATH and below CUDNN_PATH and CUDNN_FRONTEND_PATH")
  set(${out_var} ${use} PARENT_SCOPE)
  if(use AND NOT TARGET infini_train_cudnn)
    # Imported, so that its headers are the system's, whose warnings nobody sees.
    add_library(infini_train_cudnn INTERFACE IMPORTED GLOBAL)
    target_include_directories(infini_train_cudnn INTERFACE "${CUDNN_FRONTEND_INCLUDE_DIR}" "${CUDNN_INCLUDE_DIR}")
    target_compile_definitions(infini_train_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
    target_link_libraries(infini_train_cudnn INTERFACE "${CUDNN_LIBRARY}" CUDA::nvrtc)
  endif()
endfunction()

# infinitrain_read_version(<out-var> <header> <macro>...): "9.19.0" of the header's macros, empty where
# there is no such header.
function(infinitrain_read_version out_var header)
  set(numbers "")
  if(EXISTS "${header}")
    file(READ "${header}" text)
    foreach(macro IN LISTS ARGN)
      if(text MATCHES "#define ${macro} +([0-9]+)")
        list(APPEND numbers ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endif()
  list(JOIN numbers "." version)
  set(${out_var} "${version}" PARENT_SCOPE)
endfunction()
