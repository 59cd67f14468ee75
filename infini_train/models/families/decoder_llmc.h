#pragma once

#include <cstdint>
#include <vector>

#include "infini_train/checkpoint/llmc_checkpoint.h"
#include "infini_train/models/model.h"

/// The llm.c files of Llama and its kin: all layers of one kind of tensor follow each other, the
/// head is always stored, and nothing has a bias.
namespace infini_train::models {

struct DecoderLlmcLayout {
  /// Rows of queries and keys (and their norms) alternate between the halves of a head: Meta's
  /// order, in which rotary positions turn neighbours. Else Hugging Face's, which is ours.
  bool interleaved = false;
  /// Whether gates precede what they gate.
  bool gate_first = false;
};

/// The sizes that header slots 2 to 7 hold, rms_norm_eps of slot 10 and rope_theta of slot 11.
/// The head size is hidden_size / num_attention_heads, 0 where that is not whole.
nn::TransformerConfig ReadDecoderLlmcHeader(const checkpoint::LlmcReader& reader);

/// The intermediate_size that accounts for the file's bytes. Throws Error when none does.
std::int64_t IntermediateSizeOfFile(const checkpoint::LlmcReader& reader,
                                    const nn::TransformerConfig& config);

/// Throws Error unless `config` makes sense and is what the file has room for. Ties the head where
/// it repeats the embedding.
void FinishDecoderLlmcConfig(const checkpoint::LlmcReader& reader, nn::TransformerConfig& config);

/// Fills parameters with a file's next tensors, or appends them to one. `views` are of parameters,
/// whole or in part, in the order of the file.
void ReadTensors(checkpoint::LlmcReader& reader, const std::vector<Tensor>& views);
void AppendTensors(checkpoint::LlmcWriter& writer, const std::vector<Tensor>& views);

void ReadDecoderLlmcWeights(const Model& model, checkpoint::LlmcReader& reader,
                            DecoderLlmcLayout layout);
void WriteDecoderLlmcWeights(const Model& model, checkpoint::LlmcWriter& writer,
                             DecoderLlmcLayout layout);

/// Header slots 2 to 15: slot 8 and 9 say what intermediate_size is.
std::vector<std::int32_t> DecoderLlmcHeader(const nn::TransformerConfig& config, std::int32_t slot8,
                                            std::int32_t slot9, std::int32_t minor_version);

/// Throws Error naming what a file whose header says `config`'s sizes would lose. `expected` holds
/// what only this family has.
void CheckDecoderLlmcHolds(const ModelConfig& config, nn::TransformerConfig expected);

}  // namespace infini_train::models
