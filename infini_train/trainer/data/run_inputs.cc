#include "infini_train/trainer/data/run_inputs.h"

#include <string>
#include <vector>

#include "infini_train/checkpoint/training_checkpoint.h"
#include "infini_train/core/file.h"
#include "infini_train/trainer/model_source.h"
#include "infini_train/trainer/setup.h"
#include "infini_train/trainer/train_checks.h"

namespace infini_train::trainer {
namespace {

InputDataOptions TrainingData(const TrainOptions& o) {
  InputDataOptions data;
  data.bin = o.input_bin;
  data.jsonl = o.input_jsonl;
  data.sequence_length = o.sequence_length;
  data.packing = o.packing;
  data.long_records = o.long_records;
  data.num_threads = o.num_threads;
  return data;
}

/// Of a run that validates.
InputDataOptions ValidationData(const TrainOptions& o) {
  InputDataOptions data = TrainingData(o);
  data.bin = o.input_val_bin;
  data.jsonl = o.input_val_jsonl;
  data.bin_flag = "input_val_bin";
  data.jsonl_flag = "input_val_jsonl";
  data.packing = o.packing && !data.jsonl.empty();
  return data;
}

bool Validates(const TrainOptions& o) {
  return !o.input_val_bin.empty() || !o.input_val_jsonl.empty();
}

}  // namespace

RunInputs::RunInputs(const TrainOptions& given)
    : options(given), accumulation_steps(CheckTrainOptions(given)) {
  InputDataOptions train_data = TrainingData(options);
  InputDataOptions validation_data = ValidationData(options);
  CheckInputData(train_data);
  if (Validates(options)) CheckInputData(validation_data);

  std::vector<std::filesystem::path> tokenizer_folders;
  if (!options.load.empty()) {
    resume_from = checkpoint::FindCheckpoint(options.load);
    tokenizer_folders.push_back(resume_from);
  }
  weights_from = WeightsOfCheckpoint(resume_from, options);
  for (const std::vector<std::string>& inputs : {options.input_bin, options.input_jsonl}) {
    for (const std::string& folder : FoldersOf(inputs))
      tokenizer_folders.emplace_back(folder);
  }
  for (const std::string& model : {options.model, options.llmc_filepath}) {
    if (!PathExists(model)) continue;  // none, or a preset
    for (const std::string& folder : FoldersOf({model}))
      tokenizer_folders.emplace_back(folder);
  }
  tokenizer = LoadOrFindTokenizer(options.tokenizer, tokenizer_folders);

  config = ChooseModelConfig(options, weights_from, tokenizer ? tokenizer->vocab_size() : 0);
  CheckFits(options, config);
  train_data.vocab_size = validation_data.vocab_size = config.transformer.vocab_size;
  train.emplace(train_data, tokenizer.get());
  if (Validates(options)) validation.emplace(validation_data, tokenizer.get());
}

}  // namespace infini_train::trainer
