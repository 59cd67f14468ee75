# Kernels run on NVIDIA GPUs, products by cuBLAS, collectives by NCCL where it is installed.
find_package(CUDAToolkit REQUIRED)
set(MACA_STANDIN_CUDA_ARCHITECTURE 90 CACHE STRING "Compute capability that mxcc compiles kernels for")

target_compile_definitions(mcruntime PRIVATE STANDIN_OVER_NVIDIA STANDIN_WARP_SIZE=32)
target_sources(mcruntime PRIVATE cuda/launch.cc)
target_link_libraries(mcruntime PRIVATE CUDA::cudart ${CMAKE_DL_LIBS})

maca_standin_library(mcblas mcblas.cc cuda/mcblas.cc)
target_link_libraries(mcblas PRIVATE mcruntime CUDA::cublas)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${CUDAToolkit_LIBRARY_DIR}")
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  maca_standin_library(mccl cuda/mccl.cc)
  target_include_directories(mccl SYSTEM PRIVATE "${NCCL_INCLUDE_DIR}")
  target_link_libraries(mccl PRIVATE mcruntime CUDA::cudart "${NCCL_LIBRARY}")
else()
  message(NOTICE "NCCL is missing: no MCCL. Configure with -DINFINITRAIN_MACA_WITH_MCCL=OFF.")
endif()
