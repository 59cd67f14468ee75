#pragma once

#include <cstdio>
#include <cstdlib>

#include <infini/rt.h>

/// Ends the program with a message if a call failed.
#define CHECK(call)                                                                        \
  do {                                                                                     \
    infini::rt::runtime::Error error = (call);                                             \
    if (error != infini::rt::runtime::kSuccess) {                                          \
      std::fprintf(stderr, "%s: %s\n", #call, infini::rt::runtime::GetErrorString(error)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)
