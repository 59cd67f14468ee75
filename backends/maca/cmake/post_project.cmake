# Read at the end of project(): code for programs is compiled as that for libraries is.
set(CMAKE_C_COMPILE_OPTIONS_PIE "-fPIC")
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "-fPIC")
