# The version of the interface between framework and providers: see infini_train/core/extension_api.h.

# infinitrain_read_extension_api(<framework-dir> <variable>)
#
# Sets <variable> to the version that a framework checkout or installed include folder offers.
function(infinitrain_read_extension_api framework variable)
  set(header "${framework}/infini_train/core/extension_api.h")
  set(version "")
  if(EXISTS "${header}")
    file(STRINGS "${header}" line REGEX "^#define INFINI_TRAIN_EXTENSION_API_VERSION [0-9]+$")
    string(REGEX MATCH "[0-9]+$" version "${line}")
  endif()
  if(version STREQUAL "")
    message(FATAL_ERROR "  ${header} states no INFINI_TRAIN_EXTENSION_API_VERSION")
  endif()
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

# infinitrain_check_extension_api(<framework-dir> <repository-dir> <provider-dir>)
#
# Fails unless the framework offers the version that the backends were written for. A provider that
# has its own extension_api_version file speaks for itself; the others share the repository's.
function(infinitrain_check_extension_api framework repository provider)
  set(statement "${repository}/backends/extension_api_version")
  if(provider AND EXISTS "${provider}/extension_api_version")
    set(statement "${provider}/extension_api_version")
  endif()
  file(STRINGS "${statement}" needed LIMIT_COUNT 1)
  infinitrain_read_extension_api("${framework}" offered)
  # Also configure again when either statement changes.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               "${statement}" "${framework}/infini_train/core/extension_api.h")
  if(NOT offered STREQUAL needed)
    message(FATAL_ERROR "  Extension API mismatch: the framework in ${framework} has version ${offered}, "
                        "the backends need version ${needed} (${statement})")
  endif()
endfunction()
