#pragma once

#include <cstddef>

#include <infini/rt/types.h>

#include "mcr/host_api.h"

/// Puts a function, with a copy of its arguments, into a stream, for the libraries of the SDK.
STANDIN_API mcError_t __mcEnqueue(infini::rt::runtime::Error (*function)(const void* arguments),
                                  const void* arguments, std::size_t bytes, mcStream_t stream);
