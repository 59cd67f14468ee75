# MetaX's compiler for everything, chosen before the first project(); InfiniRT's MetaX runtime is the
# device. A parent project that calls project() itself chooses the compiler as this file does.
set(infinitrain_rt_backends metax)

set(MACA_PATH "$ENV{MACA_PATH}" CACHE PATH "Root of the MACA SDK; empty: /opt/maca")
if(NOT MACA_PATH)
  set(MACA_PATH /opt/maca)
endif()
option(INFINITRAIN_MACA_WITH_MCCL "Collectives of the provider maca by MCCL" ON)
set(maca_files mxgpu_llvm/bin/mxcc include/mcr/mc_runtime.h include/mcblas/mcblas.h lib/libmcruntime.so lib/libmcblas.so)
if(INFINITRAIN_MACA_WITH_MCCL)
  list(APPEND maca_files include/mccl.h lib/libmccl.so)
endif()
foreach(file IN LISTS maca_files)
  if(NOT EXISTS "${MACA_PATH}/${file}")
    message(FATAL_ERROR "  The provider maca needs the MACA SDK: expected MACA_PATH to name its root, found no ${file} "
                        "in MACA_PATH=${MACA_PATH} "
                        "(INFINITRAIN_MACA_WITH_MCCL=${INFINITRAIN_MACA_WITH_MCCL})")
  endif()
endforeach()

foreach(language IN ITEMS C CXX)
  if(NOT CMAKE_${language}_COMPILER)
    set(CMAKE_${language}_COMPILER "${MACA_PATH}/mxgpu_llvm/bin/mxcc")
  elseif(NOT CMAKE_${language}_COMPILER MATCHES "mxcc[^/]*$")
    message(FATAL_ERROR "  The provider maca is compiled by mxcc: expected CMAKE_${language}_COMPILER to be unset or "
                        "${MACA_PATH}/mxgpu_llvm/bin/mxcc, found ${CMAKE_${language}_COMPILER}")
  endif()
endforeach()

# mxcc knows neither -pthread nor -fPIE, which CMake's probes and defaults come to.
set(THREADS_PREFER_PTHREAD_FLAG OFF)
set(CMAKE_HAVE_PTHREAD_H ON)
set(CMAKE_HAVE_LIBC_PTHREAD OFF)
set(CMAKE_HAVE_PTHREADS_CREATE OFF)
set(CMAKE_HAVE_PTHREAD_CREATE ON)
set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_DIR}/post_project.cmake")
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

# OpenMP's flag is the usual one, its runtime mxcc's own.
find_library(MACA_OPENMP_LIBRARY NAMES mxomp omp iomp5 NO_DEFAULT_PATH DOC "OpenMP runtime of mxcc"
             PATHS "${MACA_PATH}/mxgpu_llvm/lib" "${MACA_PATH}/mxgpu_llvm/lib64")
if(MACA_OPENMP_LIBRARY)
  set(OpenMP_CXX_FLAGS -fopenmp)
  set(OpenMP_CXX_LIB_NAMES mxomp)
  set(OpenMP_mxomp_LIBRARY "${MACA_OPENMP_LIBRARY}")
endif()

# Installed programs find the SDK's libraries where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
