# Read before the first project(): the place to choose a compiler or to find the vendor's SDK
# (set(CMAKE_CXX_COMPILER ...), list(APPEND CMAKE_PREFIX_PATH ...)). The host compiler needs nothing.
