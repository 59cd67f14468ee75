#include "infini_train/models/families/decoder_llmc.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <string>
#include <unordered_map>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/core/error.h"
#include "infini_train/models/families/decoder_family.h"
#include "infini_train/models/families/weights.h"

namespace infini_train::models {
namespace {

/// Values in a file: the head is there even if it is tied.
std::int64_t StoredElements(nn::TransformerConfig config) {
  config.tie_word_embeddings = false;
  return config.NumParameters();
}

/// The number that a float32 of it reads as.
double AsStored(double value) {
  return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

/// A view of some rows of a parameter in the order of the file.
Tensor InFileOrder(const Tensor& rows, std::int64_t head_dim, bool interleaved) {
  if (!interleaved) return rows;
  std::vector<std::int64_t> shape = {rows.size(0) / head_dim, 2, head_dim / 2};
  if (rows.rank() == 2) shape.push_back(rows.size(1));
  return Transpose(Reshape(rows, Dims(shape)), 1, 2);
}

/// Views of the parameters in the order of the file, the embedding twice where it is the head too.
std::vector<Tensor> FileOrder(const Model& model, DecoderLlmcLayout layout) {
  const NoGrad no_grad;
  const nn::TransformerConfig& t = model.config.transformer;
  const std::unordered_map<std::string, Tensor> parameters = ParametersByName(model);
  std::vector<Tensor> order;
  const auto add_kind = [&](const std::string& name, const std::function<void(Tensor)>& add) {
    for (std::int64_t i = 0; i < t.num_hidden_layers; ++i)
      add(parameters.at(fmt::format("h.{}.{}", i, name)));
  };
  const auto add_whole = [&](const Tensor& parameter) { order.push_back(parameter); };
  const auto add_heads = [&](const Tensor& rows) {
    order.push_back(InFileOrder(rows, t.head_dim, layout.interleaved));
  };
  const std::int64_t queries = t.num_attention_heads * t.head_dim;
  const std::int64_t keys = t.num_key_value_heads * t.head_dim;

  order.push_back(parameters.at("wte.weight"));
  add_kind("ln_1.weight", add_whole);
  for (std::int64_t i = 0; t.query_key_norm && i < t.num_hidden_layers; ++i) {
    for (const char* norm : {"q_norm", "k_norm"})
      add_heads(parameters.at(fmt::format("h.{}.attn.{}.weight", i, norm)));
  }
  add_kind("attn.c_attn.weight", [&](const Tensor& packed) {
    add_heads(Slice(packed, 0, 0, queries));
    add_heads(Slice(packed, 0, queries, queries + keys));
    order.push_back(Slice(packed, 0, queries + keys, queries + 2 * keys));
  });
  add_kind("attn.c_proj.weight", add_whole);
  add_kind("ln_2.weight", add_whole);
  for (const bool gate : {layout.gate_first, !layout.gate_first}) {
    add_kind("mlp.c_fc.weight", [&](const Tensor& packed) {
      const std::int64_t begin = gate ? 0 : t.intermediate_size;
      order.push_back(Slice(packed, 0, begin, begin + t.intermediate_size));
    });
  }
  add_kind("mlp.c_proj.weight", add_whole);
  order.push_back(parameters.at("ln_f.weight"));
  order.push_back(parameters.at(t.tie_word_embeddings ? "wte.weight" : "lm_head.weight"));
  return order;
}

}  // namespace

nn::TransformerConfig ReadDecoderLlmcHeader(const checkpoint::LlmcReader& reader) {
  nn::TransformerConfig t = BaseDecoderConfig();
  t.max_position_embeddings = reader.header(2);
  t.vocab_size = reader.header(3);
  t.num_hidden_layers = reader.header(4);
  t.num_attention_heads = reader.header(5);
  t.num_key_value_heads = reader.header(6);
  t.hidden_size = reader.header(7);
  const bool divides = t.num_attention_heads > 0 && t.hidden_size % t.num_attention_heads == 0;
  t.head_dim = divides ? t.hidden_size / t.num_attention_heads : 0;
  t.norm_eps = reader.HeaderReal(10).value_or(reader.header(10));
  t.rope_theta = reader.HeaderReal(11).value_or(reader.header(11));
  return t;
}

std::int64_t IntermediateSizeOfFile(const checkpoint::LlmcReader& reader,
                                    const nn::TransformerConfig& config) {
  nn::TransformerConfig one = config;
  one.intermediate_size = 1;
  ValidateConfig(one, reader.path());
  const std::int64_t each = 3 * one.hidden_size * one.num_hidden_layers;
  const std::int64_t rest = reader.PayloadElements() - (StoredElements(one) - each);
  if (rest <= 0 || rest % each != 0) {
    throw Error(
        fmt::format("{}: expected {} values and a multiple of {} more for the sizes in the "
                    "header, found {}",
                    reader.path(), StoredElements(one) - each, each, reader.PayloadElements()));
  }
  return rest / each;
}

void FinishDecoderLlmcConfig(const checkpoint::LlmcReader& reader, nn::TransformerConfig& config) {
  ValidateConfig(config, reader.path());
  const std::int64_t elements = StoredElements(config);
  reader.CheckPayload(elements);
  const std::int64_t embedding = config.vocab_size * config.hidden_size;
  const auto first = reader.Payload(0, embedding);
  const auto last = reader.Payload(elements - embedding, embedding);
  config.tie_word_embeddings = std::equal(first.begin(), first.end(), last.begin());
}

void ReadTensors(checkpoint::LlmcReader& reader, const std::vector<Tensor>& views) {
  for (const Tensor& view : views)
    CopyWeight(view, reader.Next(view.shape()));
}

void AppendTensors(checkpoint::LlmcWriter& writer, const std::vector<Tensor>& views) {
  for (const Tensor& view : views)
    writer.Append(view);
}

void ReadDecoderLlmcWeights(const Model& model, checkpoint::LlmcReader& reader,
                            DecoderLlmcLayout layout) {
  ReadTensors(reader, FileOrder(model, layout));
}

void WriteDecoderLlmcWeights(const Model& model, checkpoint::LlmcWriter& writer,
                             DecoderLlmcLayout layout) {
  AppendTensors(writer, FileOrder(model, layout));
}

std::vector<std::int32_t> DecoderLlmcHeader(const nn::TransformerConfig& t, std::int32_t slot8,
                                            std::int32_t slot9, std::int32_t minor_version) {
  const auto integer = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const auto real = [](double value) {
    return std::bit_cast<std::int32_t>(static_cast<float>(value));
  };
  return {integer(t.max_position_embeddings),
          integer(t.vocab_size),
          integer(t.num_hidden_layers),
          integer(t.num_attention_heads),
          integer(t.num_key_value_heads),
          integer(t.hidden_size),
          slot8,
          slot9,
          real(t.norm_eps),
          real(t.rope_theta),
          t.rope_scaling ? 1 : 0,
          0,
          3,
          minor_version};
}

void CheckDecoderLlmcHolds(const ModelConfig& config, nn::TransformerConfig expected) {
  const nn::TransformerConfig& t = config.transformer;
  expected.vocab_size = t.vocab_size;
  expected.max_position_embeddings = t.max_position_embeddings;
  expected.hidden_size = t.hidden_size;
  expected.num_hidden_layers = t.num_hidden_layers;
  expected.num_attention_heads = t.num_attention_heads;
  expected.num_key_value_heads = t.num_key_value_heads;
  expected.head_dim = t.hidden_size / t.num_attention_heads;
  expected.intermediate_size = t.intermediate_size;
  expected.norm_eps = AsStored(t.norm_eps);
  expected.rope_theta = AsStored(t.rope_theta);
  expected.tie_word_embeddings = t.tie_word_embeddings;
  CheckLlmcHolds({config.family, expected, config.bos_token_id, config.eos_token_ids}, config);
}

}  // namespace infini_train::models
