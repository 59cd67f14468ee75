# Kernels with instructions of compute capability 9.0 that no other has: compiled for 9.0a alone,
# whatever the rest is compiled for. The provider asks the device before it launches one.
set(sm90a_kernels src/kernels/grouped_warpgroups.cc)
set_source_files_properties(${sm90a_kernels} PROPERTIES
  LANGUAGE CUDA COMPILE_OPTIONS "--expt-relaxed-constexpr")
add_library(infini_train_cuda_sm90a OBJECT ${sm90a_kernels})
set_target_properties(infini_train_cuda_sm90a PROPERTIES
  CUDA_ARCHITECTURES 90a-real POSITION_INDEPENDENT_CODE ON)
target_include_directories(infini_train_cuda_sm90a PRIVATE
  $<TARGET_PROPERTY:infini_train_backend_cuda,INCLUDE_DIRECTORIES>)
target_link_libraries(infini_train_cuda_sm90a PRIVATE
  InfiniTrain::InfiniTrain InfiniTrain::BackendHeaders CUDA::cudart)
target_sources(infini_train_backend_cuda PRIVATE $<TARGET_OBJECTS:infini_train_cuda_sm90a>)
