# The test suites that every device must pass, built for a provider. Without BUILD_TEST nothing is.

# infini_train_add_privateuse1_test_suites(<provider> TARGET <target> [SUITES <suite>...]
#                                          [ENVIRONMENT <NAME=value>... [ENVIRONMENT_OF <suite>...]]
#                                          [ONE_AT_A_TIME <suite>...])
#
# Builds test_<suite>_<provider> from the shared suites and <target>, the provider's whole archive
# (InfiniTrain::Backend::<NAME>Executable). CTest runs each GoogleTest suite of them as
# <provider>.<suite>.<GoogleTest suite>, labelled <provider>, accelerator and hardware; the target
# tests_<provider> builds them all. SUITES leaves the others out, ENVIRONMENT is what they, or
# only those of ENVIRONMENT_OF, run in. Of tests of suites ONE_AT_A_TIME one runs at a time, and holds
# CTest's resource <provider>. The calling folder may precede tests/: the programs are made there.
function(infini_train_add_privateuse1_test_suites provider)
  infini_train_record_device_suites(${provider} PRIVATEUSE1 ${ARGN})
endfunction()

# The same for the provider of CUDA devices.
function(infini_train_add_cuda_test_suites provider)
  infini_train_record_device_suites(${provider} CUDA ${ARGN})
endfunction()

function(infini_train_record_device_suites provider kind)
  set(lists SUITES ENVIRONMENT ENVIRONMENT_OF ONE_AT_A_TIME)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "TARGET" "${lists}")
  if(NOT ARG_TARGET OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "  expected the test suites of provider '${provider}' with TARGET <target>, got ${ARGN}")
  endif()
  set_property(GLOBAL APPEND PROPERTY INFINITRAIN_TESTED_PROVIDERS ${provider})
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_KIND "${kind}")
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_TARGET "${ARG_TARGET}")
  foreach(list IN LISTS lists)
    set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_${list} "${ARG_${list}}")
  endforeach()
endfunction()

# infini_train_add_test_variant(<provider> <variant> ENVIRONMENT <NAME=value>... [SUITES <suite>...])
#
# Has CTest also run the suites of a provider (all, or the named ones) in another environment, as
# <provider>.<variant>.<suite>.<GoogleTest suite> and labelled <provider>.<variant> besides.
# INFINI_TRAIN_TEST_DEVICE_INDEX=<n> there chooses the device under test.
function(infini_train_add_test_variant provider variant)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "ENVIRONMENT;SUITES")
  if(NOT ARG_ENVIRONMENT OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "  expected infini_train_add_test_variant(<provider> <variant> ENVIRONMENT <NAME=value>... "
                        "[SUITES <suite>...]), got (${ARGV})")
  endif()
  set_property(GLOBAL APPEND PROPERTY INFINITRAIN_TESTED_${provider}_VARIANTS ${variant})
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_${variant}_ENVIRONMENT "${ARG_ENVIRONMENT}")
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_${variant}_SUITES "${ARG_SUITES}")
endfunction()
