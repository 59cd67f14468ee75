#pragma once

/// Marks what the shared library exports; every other symbol is hidden.
#define INFINI_RT_API __attribute__((visibility("default")))
