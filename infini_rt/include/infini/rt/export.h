#pragma once

/// Marks what the shared library exports; every other symbol is hidden. `INFINI_RT_STATIC` is
/// defined by targets that compile the sources into themselves and export nothing.
#if defined(INFINI_RT_STATIC)
#define INFINI_RT_API
#else
#define INFINI_RT_API __attribute__((visibility("default")))
#endif
