#pragma once

#include "infini_train/core/api.h"

/// The command lines of the programs. Flags are `--name value` or `--name=value`, one dash or two;
/// a boolean is `--name`, `--noname` or takes true/false; the last value of a repeated flag wins,
/// lists collect. Errors are one line on stderr and exit status 2.
namespace infini_train::trainer {

struct TrainOptions;

/// `infini-train tokenize | train | generate | evaluate | export | info | conformance`.
INFINI_TRAIN_API int InfiniTrainMain(int argc, char** argv);

/// A model family's program: `train` with that family's defaults. It is named after its default
/// model.
INFINI_TRAIN_API int ModelMain(int argc, char** argv, const TrainOptions& defaults);

}  // namespace infini_train::trainer
