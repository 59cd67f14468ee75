# The third-party libraries of infini_train, found in one place: by its build, and by the installed
# package where InfiniTrain is a static library (a shared one needs none of them to be linked with).
#
# infinitrain_linked_dependencies() finds the ones that are linked, infinitrain_header_dependencies()
# the ones that only compiling infini_train needs. Arguments go to find_package (REQUIRED, QUIET).

set(infinitrain_find_modules "${CMAKE_CURRENT_LIST_DIR}/modules")

macro(infinitrain_linked_dependencies)
  list(PREPEND CMAKE_MODULE_PATH "${infinitrain_find_modules}")
  find_package(Threads ${ARGN})
  find_package(OpenMP ${ARGN} COMPONENTS CXX)
  find_package(fmt CONFIG ${ARGN})
  find_package(DNNL ${ARGN})
  find_package(PCRE2 ${ARGN})
  list(POP_FRONT CMAKE_MODULE_PATH)
endmacro()

macro(infinitrain_header_dependencies)
  find_package(CLI11 CONFIG ${ARGN})
  find_package(nlohmann_json CONFIG ${ARGN})
endmacro()
