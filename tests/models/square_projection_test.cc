// GPT-2's attention output projection is square, so that no check of shapes sees a transpose that
// was forgotten or done twice. The same model in four files must compute the same, and come back
// out as it went in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "infini_train/models/model.h"
#include "tests/common/bytes.h"
#include "tests/common/temporary_folder.h"
#include "tests/models/small_model.h"

namespace infini_train::models {
namespace {

namespace fs = std::filesystem;

using infini_train::test::BytesOf;
using infini_train::test::TemporaryFolder;

const fs::path kFolder = fs::path(GOLDEN_FOLDER) / "square_projection";

class SquareProjection : public ::testing::TestWithParam<const char*> {
 protected:
  Model model_ = LoadModel(kFolder / GetParam());
};

TEST_P(SquareProjection, LossAndLogits) {
  const auto golden = nlohmann::json::parse(ReadFile((kFolder / "golden.json").string()));
  const std::vector<std::int64_t> ids = golden["input_ids"];
  const std::vector<std::int64_t> labels = golden["labels"];
  const auto count = static_cast<std::int64_t>(ids.size());
  const NoGrad no_grad;
  const Tensor input = Tensor::FromVector(ids, {1, count});
  const Tensor loss = model_.module->Loss(input, Tensor::FromVector(labels, {1, count}),
                                          1.0 / static_cast<double>(count));
  EXPECT_NEAR(loss.Item(), golden["loss"].get<double>(), golden["loss_tolerance"].get<double>());

  const Tensor logits = (*model_.module)(input);
  const std::vector<float> last = Select(Select(logits, 0, 0), 0, count - 1).ToVector<float>();
  const std::vector<double> expected = golden["last_logits"];
  ASSERT_EQ(last.size(), expected.size());
  for (std::size_t i = 0; i < last.size(); ++i)
    EXPECT_NEAR(last[i], expected[i], golden["logits_tolerance"].get<double>()) << i;
}

TEST_P(SquareProjection, SavesTheTensorsOfEveryFile) {
  const TemporaryFolder folder;
  SaveModel(model_, folder / "saved");
  const checkpoint::SafetensorsFolder saved(folder / "saved");
  EXPECT_EQ(saved.Names().size(), 16u);
  for (const char* variant : {"plain", "prefixed", "mask_buffer"}) {
    const checkpoint::SafetensorsFolder original(kFolder / variant);
    for (const std::string& name : saved.Names()) {
      ASSERT_TRUE(name.starts_with("transformer.")) << name;
      const std::string plain = name.substr(std::string("transformer.").size());
      const Tensor expected = original.Load(original.Contains(name) ? name : plain);
      EXPECT_EQ(saved.shape(name), expected.shape()) << name;
      EXPECT_EQ(BytesOf(saved.Load(name)), BytesOf(expected)) << variant << " " << name;
    }
  }
  SaveLlmcCheckpoint(model_, folder / "model.bin");
  EXPECT_EQ(ReadFile(folder / "model.bin"), ReadFile((kFolder / "llmc/model.bin").string()));
}

INSTANTIATE_TEST_SUITE_P(
    Variants, SquareProjection,
    ::testing::Values("plain", "prefixed", "mask_buffer", "llmc/model.bin"), [](const auto& test) {
      return std::string(test.param).substr(0, std::string(test.param).find('/'));
    });

}  // namespace
}  // namespace infini_train::models
