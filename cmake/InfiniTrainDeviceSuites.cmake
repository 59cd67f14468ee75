# The test suites that every device must pass, built for a provider. Without BUILD_TEST nothing is.

# infini_train_add_privateuse1_test_suites(<provider> TARGET <target> [HEADER <file>] [NAMESPACE <name>])
#
# Builds test_<suite>_<provider> from the shared suites and <target>, the provider's executable
# interface (InfiniTrain::Backend::<NAME>Executable). The programs include HEADER (by default
# infini_train_<provider>/backend.h) and call NAMESPACE::RegisterBackend() (infini_train::<provider>).
# CTest runs each GoogleTest suite as <provider>.<suite>.<GoogleTest suite>, labelled <provider>,
# accelerator and hardware. The calling folder may precede tests/: the programs are made there.
function(infini_train_add_privateuse1_test_suites provider)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TARGET;HEADER;NAMESPACE" "")
  if(NOT ARG_TARGET OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "  expected infini_train_add_privateuse1_test_suites(<provider> TARGET <target> "
                        "[HEADER <file>] [NAMESPACE <name>]), got (${ARGV})")
  endif()
  if(NOT ARG_HEADER)
    set(ARG_HEADER "infini_train_${provider}/backend.h")
  endif()
  if(NOT ARG_NAMESPACE)
    set(ARG_NAMESPACE "infini_train::${provider}")
  endif()
  set_property(GLOBAL APPEND PROPERTY INFINITRAIN_TESTED_PROVIDERS ${provider})
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_TARGET "${ARG_TARGET}")
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_HEADER "${ARG_HEADER}")
  set_property(GLOBAL PROPERTY INFINITRAIN_TESTED_${provider}_NAMESPACE "${ARG_NAMESPACE}")
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
