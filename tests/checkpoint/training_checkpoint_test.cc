#include "infini_train/checkpoint/training_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "infini_train/checkpoint/safetensors.h"
#include "infini_train/core/file.h"
#include "tests/common/bytes.h"
#include "tests/common/errors.h"
#include "tests/common/temporary_folder.h"

namespace infini_train::checkpoint {
namespace {

namespace fs = std::filesystem;

using infini_train::test::BytesOf;
using infini_train::test::MessageOf;
using infini_train::test::NamesIn;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteBytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TrainingState SampleState() {
  TrainingState state;
  state.step = 257;
  state.optimizer = "adamw";
  state.optimizer_step = 31;
  state.optimizer_state = {
      {"exp_avg.w", Tensor::FromVector(std::vector<float>{1.0F, 1.0F + 0x1p-23F, -0.0F}, {3})},
      {"exp_avg_sq.w", Tensor::FromVector(std::vector<double>{0x1p-1074, 1e300, 0.1}, {3})},
      {"master.w", Tensor::FromVector(std::vector<BFloat16>{BFloat16(1.5F)}, {})}};
  state.random = {std::numeric_limits<std::uint64_t>::max(), (std::uint64_t{1} << 53) + 1};
  state.data_state = R"({"epoch":3,"position":9007199254740993})";
  return state;
}

TEST(TrainingState, RoundTripsBitForBit) {
  const TemporaryFolder folder;
  const TrainingState saved = SampleState();
  SaveTrainingState(saved, folder.path());
  const TrainingState loaded = LoadTrainingState(folder.path());
  EXPECT_EQ(loaded.step, saved.step);
  EXPECT_EQ(loaded.optimizer, saved.optimizer);
  EXPECT_EQ(loaded.optimizer_step, saved.optimizer_step);
  EXPECT_EQ(loaded.random, saved.random);
  EXPECT_EQ(loaded.data_state, saved.data_state);
  ASSERT_EQ(loaded.optimizer_state.size(), saved.optimizer_state.size());
  for (const auto& [name, tensor] : saved.optimizer_state) {
    bool found = false;
    for (const auto& [other, value] : loaded.optimizer_state) {
      if (other != name) continue;
      found = true;
      EXPECT_EQ(value.dtype(), tensor.dtype()) << name;
      EXPECT_EQ(value.shape(), tensor.shape()) << name;
      EXPECT_EQ(BytesOf(value), BytesOf(tensor)) << name;
    }
    EXPECT_TRUE(found) << name;
  }
  // Written as integers, which other readers do not round.
  EXPECT_THAT(ReadFile(folder / "training/state.json"),
              AllOf(HasSubstr("\"step\": 257"), HasSubstr("\"seed\": 18446744073709551615"),
                    HasSubstr("\"offset\": 9007199254740993")));
}

TEST(TrainingState, MayLeaveOptimizerAndDataOut) {
  const TemporaryFolder folder;
  TrainingState state;
  state.step = 3;
  SaveTrainingState(state, folder.path());
  const TrainingState loaded = LoadTrainingState(folder.path());
  EXPECT_EQ(loaded.step, 3);
  EXPECT_EQ(loaded.optimizer, "");
  EXPECT_TRUE(loaded.optimizer_state.empty());
  EXPECT_EQ(loaded.data_state, "");
}

// Files were written without it.
TEST(TrainingState, TheStepOfAnOptimizerIsTheRunsUnlessItIsGiven) {
  const TemporaryFolder folder;
  SaveTrainingState(SampleState(), folder.path());
  const std::string path = folder / "training/state.json";
  std::string json = ReadFile(path);
  const std::string line = "  \"optimizer_step\": 31,\n";
  ASSERT_THAT(json, HasSubstr(line));
  json.erase(json.find(line), line.size());
  WriteBytes(path, json);
  EXPECT_EQ(LoadTrainingState(folder.path()).optimizer_step, 257);
}

TEST(TrainingState, KeepsTheScalesOfFp8InAFileOfTheirOwn) {
  const TemporaryFolder folder;
  TrainingState state;
  state.fp8_state = {
      {"h.0.attn.c_attn.scale", Tensor::FromVector(std::vector<float>{0.5F, 0x1p-100F, 4.0F}, {3})},
      {"h.0.attn.c_attn.has_past", Tensor::FromVector(std::vector<std::uint8_t>{1, 0, 1}, {3})}};
  SaveTrainingState(state, folder.path());
  EXPECT_TRUE(fs::exists(Fp8StatePath(folder.path())));
  EXPECT_THAT(ReadFile(folder / "training/state.json"), HasSubstr("\"fp8\": true"));
  const TrainingState loaded = LoadTrainingState(folder.path());
  ASSERT_EQ(loaded.fp8_state.size(), 2u);
  for (const auto& [name, tensor] : loaded.fp8_state) {
    const Tensor& expected = state.fp8_state[name.ends_with("scale") ? 0 : 1].second;
    EXPECT_EQ(tensor.dtype(), expected.dtype()) << name;
    EXPECT_EQ(BytesOf(tensor), BytesOf(expected)) << name;
  }
  // A file that a state does not speak of is none of its own.
  state.fp8_state.clear();
  SaveTrainingState(state, folder.path());
  EXPECT_TRUE(LoadTrainingState(folder.path()).fp8_state.empty());
}

TEST(TrainingState, RefusesDataStateThatIsNotJson) {
  const TemporaryFolder folder;
  TrainingState state;
  state.data_state = "{";
  EXPECT_THAT(MessageOf([&] { SaveTrainingState(state, folder.path()); }), HasSubstr("JSON"));
}

struct BadState {
  std::string json;
  std::string expected;
};

TEST(TrainingState, RefusesBadFiles) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "training");
  const std::string tail = R"("optimizer":"","random":{"seed":1,"offset":2},"data":null})";
  const BadState cases[] = {
      {"", "JSON"},
      {"{", "JSON"},
      {"[1]", "state.json"},
      {"7", "state.json"},
      {"{}", "state.json: version: missing"},
      {std::string(100'000, '['), "nested"},
      {R"({"version":1,"step":1,"optimizer":"","random":{"seed":1,"offset":2},"data":)" +
           std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "nested"},
      {R"({"version":2,"step":1,)" + tail, "version: expected 1, found 2"},
      {R"({"version":1.5,"step":1,)" + tail, "version"},
      {R"({"version":1,)" + tail, "step"},
      {R"({"version":1,"step":-1,)" + tail, "step"},
      {R"({"version":1,"step":257.0,)" + tail, "step"},
      {R"({"version":1,"step":"257",)" + tail, "step"},
      {R"({"version":1,"step":null,)" + tail, "step"},
      {R"({"version":1,"step":1e400,)" + tail, "state.json"},
      {R"({"version":1,"step":18446744073709551615,)" + tail, "step"},
      {R"({"version":1,"step":99999999999999999999999,)" + tail, "step"},
      {R"({"version":1,"step":1,"optimizer":1,"random":{"seed":1,"offset":2},"data":null})",
       "state.json"},
      {R"({"version":1,"step":1,"optimizer":"","random":{"seed":-1,"offset":2},"data":null})",
       "seed"},
      {R"({"version":1,"step":1,"optimizer":"","random":{"seed":1},"data":null})",
       "state.json: random.offset: missing"},
      {R"({"version":1,"step":1,"optimizer":"","random":3,"data":null})", "state.json"},
      {R"({"version":1,"step":1,"optimizer":"","random":{"seed":1,"offset":2}})",
       "state.json: data: missing"},
      {R"({"version":1,"step":1,"fp8":true,)" + tail, "fp8.safetensors"},
      {R"({"version":1,"step":1,"fp8":3,)" + tail, "fp8: expected true or false, found 3"},
      {R"({"version":1,"step":1,"optimizer":"adamw","random":{"seed":1,"offset":2},"data":null})",
       "optimizer.safetensors"},
      {R"({"version":1,"step":1,"optimizer":"sgd","optimizer_step":2,"random":{"seed":1,"offset":2},"data":null})",
       "optimizer_step: expected an integer from 0 to 1, found 2"},
      {R"({"version":1,"step":1,"optimizer":"sgd","optimizer_step":"1","random":{"seed":1,"offset":2},"data":null})",
       R"(optimizer_step: expected an integer from 0 to 1, found "1")"},
  };
  for (const BadState& bad : cases) {
    WriteBytes(folder / "training/state.json", bad.json);
    EXPECT_THAT(MessageOf([&] { LoadTrainingState(folder.path()); }),
                AllOf(HasSubstr(folder.path()), HasSubstr(bad.expected)))
        << bad.json.substr(0, 100);
  }
  fs::remove(folder / "training/state.json");
  EXPECT_THAT(MessageOf([&] { LoadTrainingState(folder.path()); }), HasSubstr("state.json"));
}

/// Writes a state whose step is also the content of a file.
void WriteStep(std::int64_t step, const fs::path& folder) {
  fs::create_directories(folder);
  WriteFileAtomically((folder / "model").string(), std::to_string(step));
  TrainingState state;
  state.step = step;
  SaveTrainingState(state, folder);
}

fs::path SaveStep(const CheckpointManager& manager, std::int64_t step) {
  return manager.Save(step, [&](const fs::path& folder) { WriteStep(step, folder); });
}

TEST(CheckpointManager, KeepsTheNewestAndNamesItInLatest) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder / "run", 2);
  for (const std::int64_t step : {5, 10, 1'000'000, 2'000'000}) {
    const fs::path saved = SaveStep(manager, step);
    EXPECT_EQ(FindCheckpoint(folder / "run"), saved);
    EXPECT_EQ(FindCheckpoint(saved), saved);
    EXPECT_EQ(LoadTrainingState(saved).step, step);
    EXPECT_EQ(ReadFile(folder / "run/latest"), saved.filename().string() + "\n");
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names,
              UnorderedElementsAre("checkpoint_step_1000000", "checkpoint_step_2000000", "latest"));
}

TEST(CheckpointManager, KeepsAllWithoutALimit) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder.path(), 0);
  for (const std::int64_t step : {1, 2, 3, 4})
    SaveStep(manager, step);
  EXPECT_EQ(NamesIn(folder.path()).size(), 5u);
}

TEST(CheckpointManager, NeverRemovesTheOneJustWritten) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder.path(), 1);
  SaveStep(manager, 500);
  const fs::path saved = SaveStep(manager, 100);
  EXPECT_EQ(FindCheckpoint(folder.path()), saved);
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("checkpoint_step_000100", "latest"));
}

TEST(CheckpointManager, ReplacesACheckpointOfTheSameStep) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder.path(), 0);
  manager.Save(7, [](const fs::path& target) {
    WriteFileAtomically((target / "old").string(), "");
    WriteStep(7, target);
  });
  const fs::path saved = SaveStep(manager, 7);
  EXPECT_FALSE(fs::exists(saved / "old"));
  EXPECT_EQ(ReadFile((saved / "model").string()), "7");
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("checkpoint_step_000007", "latest"));
}

TEST(CheckpointManager, AFailedSaveLeavesNothingBehind) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder.path(), 1);
  const fs::path old = SaveStep(manager, 7);
  for (const std::int64_t step : {7, 8}) {
    EXPECT_THAT(MessageOf([&] {
                  manager.Save(step, [](const fs::path& target) {
                    WriteFileAtomically((target / "model").string(), "half");
                    throw Error("no space");
                  });
                }),
                HasSubstr("no space"));
    EXPECT_EQ(FindCheckpoint(folder.path()), old);
    EXPECT_EQ(ReadFile((old / "model").string()), "7");
    EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("checkpoint_step_000007", "latest"));
  }
}

TEST(CheckpointManager, ClearsWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder.path(), 0);
  WriteStep(3, folder / ".checkpoint_step_000003.writing");
  WriteStep(2, folder / ".checkpoint_step_000002.replaced");
  WriteStep(2, folder / "checkpoint_step_000002");
  WriteBytes(folder / "latest.tmp-1-2", "check");
  WriteBytes(folder / ".hidden", "someone else's");
  EXPECT_EQ(FindCheckpoint(folder.path()), folder / "checkpoint_step_000002");
  SaveStep(manager, 4);
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("checkpoint_step_000002", ".hidden",
                                                           "checkpoint_step_000004", "latest"));
}

TEST(CheckpointManager, FindsAndRestoresOneThatWasBeingReplaced) {
  const TemporaryFolder folder;
  WriteStep(2, folder / "checkpoint_step_000002");
  WriteStep(9, folder / ".checkpoint_step_000009.replaced");
  WriteBytes(folder / "latest", "checkpoint_step_000009\n");
  EXPECT_EQ(LoadTrainingState(FindCheckpoint(folder.path())).step, 9);
  SaveStep(CheckpointManager(folder.path(), 0), 10);
  EXPECT_EQ(LoadTrainingState(folder / "checkpoint_step_000009").step, 9);
}

TEST(FindCheckpoint, FallsBackToTheHighestCompleteStep) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {2, 10})
    WriteStep(step, folder / ("checkpoint_step_" + std::to_string(step)));
  fs::create_directories(folder / "checkpoint_step_000011");
  fs::create_directories(folder / "checkpoint_step_12x/training");
  WriteBytes(folder / "checkpoint_step_12x/training/state.json", "{}");
  const std::string expected = folder / "checkpoint_step_10";
  EXPECT_EQ(FindCheckpoint(folder.path()), expected);
  for (const std::string latest :
       {"", "\n", "checkpoint_step_000011\n", "checkpoint_step_000099", "../checkpoint_step_2", "/",
        "checkpoint_step_-1", "checkpoint_step_99999999999999999999"}) {
    WriteBytes(folder / "latest", latest);
    EXPECT_EQ(FindCheckpoint(folder.path()), expected) << latest;
  }
  WriteBytes(folder / "latest", "checkpoint_step_2");
  EXPECT_EQ(FindCheckpoint(folder.path()), folder / "checkpoint_step_2");
}

TEST(FindCheckpoint, SaysWhereThereIsNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf([&] { FindCheckpoint(folder.path()); }), HasSubstr(folder.path()));
  EXPECT_THAT(MessageOf([&] { FindCheckpoint(folder / "absent"); }), HasSubstr("absent"));
}

}  // namespace
}  // namespace infini_train::checkpoint
