# Kernels run in the SIMT emulator, products on the CPU, collectives between threads.
find_package(Boost REQUIRED COMPONENTS context)
find_package(fmt CONFIG REQUIRED)
list(PREPEND CMAKE_MODULE_PATH "${repository}/cmake/modules")
find_package(DNNL REQUIRED)

# The emulator's time is not the kernels': compiling them fully optimised costs twice as much as it gains.
set(MACA_STANDIN_DEVICE_FLAGS -O1 CACHE STRING "Flags that mxcc gives its compiler for -x maca besides")

include("${repository}/backends/simt/emulator/sources.cmake")
target_sources(mcruntime PRIVATE sim/device.cc sim/launch.cc ${simt_emulator_sources} ${simt_emulator_core_sources})
target_link_libraries(mcruntime PRIVATE Boost::context fmt::fmt)

maca_standin_library(mcblas mcblas.cc sim/mcblas.cc)
target_link_libraries(mcblas PRIVATE mcruntime DNNL::dnnl)

maca_standin_library(mccl sim/mccl.cc sim/mccl_group.cc)
target_link_libraries(mccl PRIVATE mcruntime Threads::Threads)
