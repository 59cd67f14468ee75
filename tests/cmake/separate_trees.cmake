# cmake -DSOURCE_DIR= -DBINARY_DIR= -DARGS= -DPROVIDER_DIR= -P separate_trees.cmake
#
# Two build trees of one checkout, one of them with a provider: neither sees the other's choices.

file(REMOVE_RECURSE "${BINARY_DIR}")
set(accelerated "${BINARY_DIR}/accelerated")
set(plain "${BINARY_DIR}/plain")

function(expect_cache tree name value)
  load_cache("${tree}" READ_WITH_PREFIX cached_ ${name})
  if(NOT "${cached_${name}}" STREQUAL "${value}")
    message(FATAL_ERROR "${tree}: expected ${name}='${value}', found '${cached_${name}}'")
  endif()
endfunction()

function(configure)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" ${ARGN} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

configure(-B "${accelerated}" ${ARGS} -DINFINITRAIN_BACKEND=outside "-DINFINITRAIN_BACKEND_DIR=${PROVIDER_DIR}")
configure(-B "${plain}" ${ARGS} -DINFINITRAIN_BACKEND=cpu)
configure(-B "${accelerated}")

expect_cache("${accelerated}" INFINITRAIN_BACKEND outside)
expect_cache("${accelerated}" INFINITRAIN_BACKEND_DIR "${PROVIDER_DIR}")
expect_cache("${plain}" INFINITRAIN_BACKEND cpu)
expect_cache("${plain}" INFINITRAIN_BACKEND_DIR "")

# USE_CUDA chooses for as long as it is on.
configure(-B "${plain}" -DUSE_CUDA=ON "-DINFINITRAIN_BACKEND_DIR=${PROVIDER_DIR}")
configure(-B "${plain}" -DUSE_CUDA=OFF -DINFINITRAIN_BACKEND_DIR=)
expect_cache("${plain}" INFINITRAIN_BACKEND cpu)
