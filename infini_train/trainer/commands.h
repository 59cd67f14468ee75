#pragma once

#include <cstdio>

#include "infini_train/core/api.h"
#include "infini_train/trainer/options.h"

/// The commands of infini-train besides `train` (trainer.h). Each prints to `out` and throws Error
/// on bad input.
namespace infini_train::trainer {

/// Files and folders to token shards with a train/validation split.
INFINI_TRAIN_API void TokenizeCommand(const TokenizeCommandOptions& options, std::FILE* out);

/// Continues prompts; text appears as it is made.
INFINI_TRAIN_API void GenerateCommand(const GenerateOptions& options, std::FILE* out);

/// Loss and perplexity of a model over token files.
INFINI_TRAIN_API void EvaluateCommand(const EvaluateOptions& options, std::FILE* out);

/// Writes a model in another format.
INFINI_TRAIN_API void ExportCommand(const ExportOptions& options, std::FILE* out);

/// Describes this build, or a model, checkpoint or token file.
INFINI_TRAIN_API void InfoCommand(const InfoOptions& options, std::FILE* out);

/// Checks every op of a device against float64 and writes the report; returns 1 where an op failed.
INFINI_TRAIN_API int ConformanceCommand(const ConformanceOptions& options, std::FILE* out);

}  // namespace infini_train::trainer
