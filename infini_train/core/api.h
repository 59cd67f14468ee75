#pragma once

/// Marks what the library exports; every other symbol is hidden.
#define INFINI_TRAIN_API __attribute__((visibility("default")))
