# NVIDIA's compiler for the kernels, the host compiler for everything else; InfiniRT's NVIDIA runtime
# is the device.
set(infinitrain_rt_backends nvidia)
set(infinitrain_languages CUDA)

find_program(CMAKE_CUDA_COMPILER NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
             PATH_SUFFIXES bin DOC "Compiler of the kernels")
execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch
                OUTPUT_VARIABLE architectures RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "  The provider cuda needs the CUDA toolkit (12.4 or later): expected nvcc on PATH, below "
                      "CUDA_HOME or in CMAKE_CUDA_COMPILER, found '${CMAKE_CUDA_COMPILER}'")
endif()

# Ampere, Hopper and the newest.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  string(REGEX MATCHALL "[0-9]+" architectures "${architectures}")
  list(SORT architectures COMPARE NATURAL)
  list(GET architectures -1 newest)
  set(CMAKE_CUDA_ARCHITECTURES 80 90 ${newest} CACHE STRING "Compute capabilities to compile kernels for")
endif()

# One runtime for kernels and InfiniRT.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
# Installed programs find NVIDIA's libraries where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
