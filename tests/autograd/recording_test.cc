#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "infini_train/autograd/backward.h"
#include "infini_train/autograd/functions.h"
#include "infini_train/autograd/grad_mode.h"
#include "infini_train/autograd/node.h"
#include "infini_train/core/error.h"
#include "infini_train/ops/dispatch.h"
#include "tests/common/device_test.h"

namespace infini_train {
namespace {

using test::ExpectEqual;
using test::ExpectSameBits;
using test::MakeTensor;
using test::ToDoubles;
using testing::HasSubstr;
using testing::ThrowsMessage;

class RecordingTest : public DeviceTest {
 protected:
  Tensor Floats(const std::vector<double>& values) const {
    return MakeTensor(device(), DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values);
  }
  Tensor Leaf(const std::vector<double>& values) const {
    return Floats(values).set_requires_grad();
  }
};
INFINI_TRAIN_INSTANTIATE_DEVICE_SUITE(RecordingTest);

TEST_P(RecordingTest, OnlyWhatDependsOnALeafThatRequiresAGradientIsRecorded) {
  const Tensor x = Leaf({1});
  const Tensor constant = Floats({2});
  EXPECT_TRUE((x * constant).requires_grad());
  EXPECT_FALSE((x * constant).is_leaf());
  EXPECT_FALSE((constant * constant).requires_grad());
  EXPECT_TRUE((constant * constant).is_leaf());
  EXPECT_THROW((x * 2).set_requires_grad(false), Error);
  EXPECT_THROW(Zeros({1}, DataType::kInt64, device()).set_requires_grad(), Error);
}

TEST_P(RecordingTest, NoGradStopsRecordingForAScopeAndAThread) {
  const Tensor x = Leaf({1});
  {
    const NoGrad no_grad;
    EXPECT_FALSE((x * 2).requires_grad());
    {
      const GradModeGuard enabled(true);
      EXPECT_TRUE((x * 2).requires_grad());
    }
    EXPECT_FALSE(Reshape(x, {1, 1}).requires_grad());
    std::thread([&] { EXPECT_TRUE((x * 2).requires_grad()); }).join();
  }
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST_P(RecordingTest, BackwardItselfIsNotRecorded) {
  const Tensor x = Leaf({1, 2});
  Backward(Sum(x * x));
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST_P(RecordingTest, ASavedValueThatWasModifiedIsAnError) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = Exp(x);
  AddInPlace(y, Floats({1, 1}));
  EXPECT_THAT([&] { Backward(Sum(y)); }, ThrowsMessage<Error>(HasSubstr("modified in place")));

  const Tensor w = Leaf({3, 4});
  const Tensor loss = Sum(x * w);
  {
    const NoGrad no_grad;
    MulInPlace(w, 2);
  }
  EXPECT_THROW(Backward(loss), Error);
}

TEST_P(RecordingTest, AValueThatIsNotSavedMayBeModified) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor z = y + 1;
  MulInPlace(y, 5);
  Backward(Sum(y + z));
  ExpectEqual(x.grad(), {18, 18});
}

TEST_P(RecordingTest, AViewIsStaleWhenItsBaseWasModified) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  const Tensor view = Slice(y, 0, 1);
  AddInPlace(y, Floats({1, 1}));
  EXPECT_THAT([&] { Sum(view); }, ThrowsMessage<Error>(HasSubstr("modified in place")));
  Backward(Sum(Slice(y, 0, 1)));
  ExpectEqual(x.grad(), {0, 3});
}

TEST_P(RecordingTest, AWriteThroughADetachedTensorIsNoticed) {
  const Tensor x = Leaf({1, 2});
  const Tensor y = x * 3;
  FillInPlace(y.Detach(), 0);
  EXPECT_THROW(Sum(y), Error);
  EXPECT_THROW(MulInPlace(y, 2), Error);
}

TEST_P(RecordingTest, SavedTensorHooksPackAndUnpackEachValueOnce) {
  const Tensor x = Leaf({1, 2});
  const Tensor w = Leaf({3, 4});
  int packed = 0;
  int unpacked = 0;
  Tensor loss;
  {
    const autograd::SavedTensorHooks hooks(
        [&](const Tensor& tensor) -> std::shared_ptr<void> {
          ++packed;
          EXPECT_FALSE(tensor.requires_grad());
          return std::make_shared<std::vector<double>>(ToDoubles(tensor));
        },
        [&](const std::shared_ptr<void>& value) {
          ++unpacked;
          const auto& values = *static_cast<std::vector<double>*>(value.get());
          return Floats(values);
        });
    // The product saves two values, the exponential its output, the sums none.
    loss = Sum(x * w) + Sum(Exp(x));
    EXPECT_EQ(packed, 3);
  }
  const Tensor outside = Sum(x * w);
  EXPECT_EQ(packed, 3);
  EXPECT_EQ(unpacked, 0);
  Backward(loss);
  EXPECT_EQ(unpacked, 3);
  const std::vector<double> exponential = ToDoubles(Exp(x.Detach()));
  ExpectEqual(x.grad(), {3 + exponential[0], 4 + exponential[1]});
  ExpectEqual(w.grad(), {1, 2});
}

TEST_P(RecordingTest, SavedTensorHooksNestAndNothingIsPackedWithoutRecording) {
  const Tensor x = Leaf({1, 2});
  int outer = 0;
  int inner = 0;
  const auto unpack = [](const std::shared_ptr<void>& value) {
    return *static_cast<Tensor*>(value.get());
  };
  const auto counting = [](int& count) {
    return [&count](const Tensor& tensor) -> std::shared_ptr<void> {
      ++count;
      return std::make_shared<Tensor>(tensor);
    };
  };
  const autograd::SavedTensorHooks outer_hooks(counting(outer), unpack);
  Exp(x);
  {
    const autograd::SavedTensorHooks inner_hooks(counting(inner), unpack);
    Exp(x);
    Exp(x.Detach());
    const NoGrad no_grad;
    Exp(x);
  }
  Exp(x);
  EXPECT_EQ(outer, 2);
  EXPECT_EQ(inner, 1);
}

TEST_P(RecordingTest, OnlyNeededValuesAreSaved) {
  int packed = 0;
  const autograd::SavedTensorHooks hooks(
      [&](const Tensor& tensor) -> std::shared_ptr<void> {
        ++packed;
        return std::make_shared<Tensor>(tensor);
      },
      [](const std::shared_ptr<void>& value) { return *static_cast<Tensor*>(value.get()); });
  const Tensor x = Leaf({1, 2});
  const Tensor constant = Floats({3, 4});
  Tensor y = x + constant;
  y = y * 2;
  y = Reshape(y, {2, 1});
  y = Sum(y);
  EXPECT_EQ(packed, 0);
  y = x * constant;
  EXPECT_EQ(packed, 1);
}

TEST_P(RecordingTest, AFunctionOfOnesOwn) {
  const Tensor x = Leaf({1, 2});
  Tensor y = Tensor::EmptyLike(x);
  Call<op::MulScalar>(y, x, Scalar(2));
  autograd::Record("Double", {&y}, {&x}, [](autograd::BackwardContext& context) {
    EXPECT_TRUE(context.NeedsGrad(0));
    context.SetGrad(0, context.TakeGradOutput() * 2);
  });
  Backward(Sum(y * y));
  ExpectEqual(x.grad(), {8, 16});
}

TEST_P(RecordingTest, AutocastRunsMatrixProductsInItsType) {
  const Tensor x = Normal({4, 8}, 0, 1, DataType::kFloat32, device());
  const Tensor weight = Normal({3, 8}, 0, 1, DataType::kFloat32, device());
  x.set_requires_grad();
  weight.set_requires_grad();
  const Autocast autocast(DataType::kBFloat16);
  const Tensor y = Linear(x, weight);
  EXPECT_EQ(y.dtype(), DataType::kBFloat16);
  ExpectSameBits(y, Linear(To(x, DataType::kBFloat16), To(weight, DataType::kBFloat16)));
  EXPECT_EQ(Matmul(x, Transpose(weight, 0, 1)).dtype(), DataType::kBFloat16);
  const Tensor heads = Reshape(x, {1, 2, 4, 4});
  EXPECT_EQ(ScaledDotProductAttention(heads, heads, heads, {}).dtype(), DataType::kBFloat16);
  // Everything else meets in the operands' type.
  EXPECT_EQ((Slice(x, 1, 0, 3) + y).dtype(), DataType::kFloat32);
  EXPECT_EQ(LayerNorm(x, Tensor(), Tensor()).dtype(), DataType::kFloat32);
  EXPECT_EQ(Softmax(x, 1).dtype(), DataType::kFloat32);
  EXPECT_EQ((x * x).dtype(), DataType::kFloat32);
  Backward(Sum(y));
  EXPECT_EQ(x.grad().dtype(), DataType::kFloat32);
  EXPECT_EQ(weight.grad().dtype(), DataType::kFloat32);
  const std::vector<double> exact =
      ToDoubles(Matmul(Ones({4, 3}, DataType::kFloat64, device()),
                       To(To(weight.Detach(), DataType::kBFloat16), DataType::kFloat64)));
  test::ExpectClose(x.grad(), exact, {.operations = 8, .scale = 8, .compute = DataType::kBFloat16});
}

TEST_P(RecordingTest, AutocastNestsAndLeavesFloat64Alone) {
  const Tensor x = Ones({2, 2}, DataType::kFloat32, device());
  const Tensor wide = Ones({2, 2}, DataType::kFloat64, device());
  EXPECT_EQ(Matmul(x, x).dtype(), DataType::kFloat32);
  {
    const Autocast autocast(DataType::kBFloat16);
    EXPECT_EQ(Matmul(wide, wide).dtype(), DataType::kFloat64);
    {
      const Autocast off(std::nullopt);
      EXPECT_EQ(Matmul(x, x).dtype(), DataType::kFloat32);
    }
    EXPECT_EQ(Matmul(x, x).dtype(), DataType::kBFloat16);
  }
  EXPECT_EQ(Matmul(x, x).dtype(), DataType::kFloat32);
  EXPECT_THROW(Autocast(DataType::kFloat16), Error);
}

}  // namespace
}  // namespace infini_train
