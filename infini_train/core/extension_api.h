#pragma once

/// Version of the interface between the framework and accelerator providers: op signatures,
/// runtime, allocator and collective hooks, and registration (docs/extension_api.md). It grows by
/// one whenever a provider that builds against the old interface would no longer build or run
/// against the new one.
///
/// CMake reads this line and compares it with the version that the backends were written for
/// (`backends/extension_api_version`, or the file of that name in a provider's own folder).
#define INFINI_TRAIN_EXTENSION_API_VERSION 4
