# Libraries of the vendor that the provider uses where they are found.

# infinitrain_optional_library(<out-var> <option> SUBJECT <text> WITH <text> WITHOUT <text> PLACES <text>
#                              [LACKS <part>...])
#
# Whether a library is used, by an option that is AUTO, ON or OFF and by what of it was not found; says
# so in one line: "SUBJECT: WITH" or "SUBJECT: WITHOUT". ON is an error where anything lacks.
function(infinitrain_optional_library out_var option)
  cmake_parse_arguments(PARSE_ARGV 2 library "" "SUBJECT;WITH;WITHOUT;PLACES" "LACKS")
  list(JOIN library_LACKS ", " lacks)
  string(REGEX REPLACE "[A-Z_]+-NOTFOUND ?" "none" lacks "${lacks}")
  set(${out_var} OFF PARENT_SCOPE)
  if(${option} STREQUAL "OFF")
    message(STATUS "${library_SUBJECT}: ${library_WITHOUT} (${option}=OFF)")
  elseif(NOT lacks)
    message(STATUS "${library_SUBJECT}: ${library_WITH}")
    set(${out_var} ON PARENT_SCOPE)
  elseif(${option} STREQUAL "ON")
    message(FATAL_ERROR "  ${option}=ON: looked ${library_PLACES}, lacks: ${lacks}")
  else()
    message(STATUS "${library_SUBJECT}: ${library_WITHOUT}; it would need ${lacks}")
  endif()
endfunction()
